import { readFileSync, writeFileSync } from 'node:fs';
import { type GgufTensor, readGguf } from '../../src/ggml/gguf.ts';
import { text, u32, u64 } from './gguf-bytes.ts';

const alignment = 32;
const u16Type = 2;
const i32Type = 5;

/**
 * Writes a model as parts `NAME-00001-of-00003.gguf`, as `llama-gguf-split` does, and returns their paths.
 * `isFirstEmpty`: the first part has no tensors.
 */
export async function splitModel(path: string, name: string, count: number, isFirstEmpty = false): Promise<string[]> {
  const bytes = readFileSync(path);
  const tensors = [...(await readGguf(path)).tensors.values()];
  const keyCount = Number(bytes.readBigUInt64LE(16));
  const keys = bytes.subarray(24, bytes.indexOf(text(tensors[0]!.name)));
  const filled = isFirstEmpty ? count - 1 : count;
  const perPart = Math.ceil(tensors.length / filled);
  return Array.from({ length: count }, (_, part) => {
    const at = (isFirstEmpty ? part - 1 : part) * perPart;
    const own = at < 0 ? [] : tensors.slice(at, at + perPart);
    const header = [
      ...[scalar('split.no', u16Type, u16(part)), scalar('split.count', u16Type, u16(count))],
      scalar('split.tensors.count', i32Type, u32(tensors.length)),
    ];
    const partPath = `${name}-${padded(part + 1)}-of-${padded(count)}.gguf`;
    const [keysHere, keyCountHere] = part === 0 ? [keys, keyCount] : [Buffer.alloc(0), 0];
    writeFileSync(
      partPath,
      fileOf({ keys: Buffer.concat([keysHere, ...header]), keyCount: keyCountHere + header.length }, own, bytes),
    );
    return partPath;
  });
}

interface Keys {
  readonly keys: Buffer;
  readonly keyCount: number;
}

function fileOf({ keys, keyCount }: Keys, tensors: readonly GgufTensor[], bytes: Buffer): Buffer {
  const infos: Buffer[] = [];
  const data: Buffer[] = [];
  let end = 0;
  for (const { name, type, ne, fileOffset, byteLength } of tensors) {
    infos.push(text(name), u32(ne.length), ...ne.map(u64), u32(type.id), u64(end));
    const gap = Buffer.alloc((alignment - (byteLength % alignment)) % alignment);
    data.push(bytes.subarray(fileOffset, fileOffset + byteLength), gap);
    end += byteLength + gap.length;
  }
  const header = Buffer.concat([Buffer.from('GGUF'), u32(3), u64(tensors.length), u64(keyCount), keys, ...infos]);
  const gap = tensors.length === 0 ? 0 : (alignment - (header.length % alignment)) % alignment;
  return Buffer.concat([header, Buffer.alloc(gap), ...data]);
}

const scalar = (key: string, type: number, value: Buffer): Buffer => Buffer.concat([text(key), u32(type), value]);

function u16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16LE(value);
  return bytes;
}

const padded = (number: number): string => String(number).padStart(5, '0');

import { ggufCorrupt, ggufOversized, ggufTruncated } from './errors.ts';
import type { GgufCursor } from './gguf-cursor.ts';
import { type GgmlType, ggmlTypes, rowBytes } from './types.ts';

export interface GgufTensor {
  readonly name: string;
  readonly type: GgmlType;
  /** ggml's order: `ne[0]` is the length of a row; unused dimensions are 1. */
  readonly ne: readonly [number, number, number, number];
  readonly byteLength: number;
  /** The index of the file in `GgufFile.parts`. */
  readonly part: number;
  /** From the start of the file. */
  readonly fileOffset: number;
}

/** ggml's GGML_MAX_NAME without the terminating zero. */
const TENSOR_NAME_BYTES_MAX = 63;

interface TensorInfo {
  readonly name: string;
  readonly type: GgmlType;
  readonly ne: readonly [number, number, number, number];
  readonly offset: number;
}

/** The names, types and shapes of all tensors. Checks each tensor on its own. */
export async function readTensorInfos(cursor: GgufCursor, count: number): Promise<TensorInfo[]> {
  const infos: TensorInfo[] = [];
  const names = new Set<string>();
  for (let i = 0; i < count; i++) {
    const which = `tensor ${i + 1} of ${count}`;
    const name = await cursor.string(TENSOR_NAME_BYTES_MAX, `the name of ${which}`);
    if (name === '' || name.includes('\0')) throw cursor.corrupt(`${which} has an empty or invalid name`);
    if (names.has(name)) throw cursor.corrupt(`tensor ${name} appears twice`);
    names.add(name);
    infos.push(await readTensorInfo(cursor, name));
  }
  return infos;
}

async function readTensorInfo(cursor: GgufCursor, name: string): Promise<TensorInfo> {
  const what = `the description of tensor ${name}`;
  await cursor.ensure(4, what);
  const dimensions = cursor.takeU32();
  if (dimensions < 1 || dimensions > 4) throw cursor.corrupt(`tensor ${name} has ${dimensions} dimensions`, 4);
  await cursor.ensure(8 * dimensions + 12, what);
  const ne: [number, number, number, number] = [1, 1, 1, 1];
  for (let i = 0; i < dimensions; i++)
    ne[i] = cursor.takeCount(Number.MAX_SAFE_INTEGER, `a dimension of tensor ${name}`);
  const typeId = cursor.takeU32();
  const type = ggmlTypes.get(typeId);
  if (type === undefined) throw cursor.corrupt(`tensor ${name} has the unknown type ${typeId}`, 4);
  if (ne.includes(0)) throw cursor.corrupt(`tensor ${name} has an empty shape [${ne.join(', ')}]`);
  if (ne[0] % type.blockSize !== 0) {
    throw cursor.corrupt(
      `tensor ${name} has rows of ${ne[0]} elements, which is not a multiple of the block of ${type.name}`,
    );
  }
  const offset = cursor.takeCount(Number.MAX_SAFE_INTEGER, `the offset of tensor ${name}`);
  return { name, type, ne, offset };
}

/**
 * ggml writes tensors one after another in the order of their infos, each padded. A file with other offsets is corrupt.
 */
export function placeTensors(
  cursor: GgufCursor,
  infos: readonly TensorInfo[],
  dataOffset: number,
  alignment: number,
): Map<string, GgufTensor> {
  const { path, fileBytes } = cursor;
  const tensors = new Map<string, GgufTensor>();
  let end = dataOffset;
  for (const { name, type, ne, offset } of infos) {
    const fileOffset = padded(end, alignment);
    if (dataOffset + offset !== fileOffset) {
      const problem = `tensor ${name} has offset ${offset}, but the tensor before it ends at ${fileOffset - dataOffset}`;
      throw ggufCorrupt({ path, problem, offset: cursor.position });
    }
    const byteLength = rowBytes(type, ne[0]) * ne[1] * ne[2] * ne[3];
    end = fileOffset + byteLength;
    if (end > fileBytes) throw ggufTruncated({ path, fileBytes, what: `tensor ${name}`, neededBytes: end });
    tensors.set(name, { name, type, ne, byteLength, part: 0, fileOffset });
  }
  if (fileBytes > padded(end, alignment)) throw ggufOversized({ path, fileBytes, expectedBytes: end });
  return tensors;
}

/** The next multiple of the alignment. */
export const padded = (offset: number, alignment: number): number => Math.ceil(offset / alignment) * alignment;

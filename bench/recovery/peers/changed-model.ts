import { readFile, writeFile } from 'node:fs/promises';
import { assert } from '../../../src/base/assert.ts';

/** Another model of the same shape. */
export type ModelChange = 'other weights' | 'other rotary base';

/** Writes a copy of a GGUF file with its change. All sizes and the vocabulary stay equal. */
export async function writeChangedModel(from: string, to: string, change: ModelChange): Promise<void> {
  const bytes = await readFile(from);
  if (change === 'other weights') exchangeNames(bytes, 'blk.1.attn_k.weight', 'blk.2.attn_k.weight');
  else halveRotaryBase(bytes);
  await writeFile(to, bytes);
}

function exchangeNames(bytes: Buffer, one: string, other: string): void {
  const [at, otherAt] = [bytes.indexOf(one), bytes.indexOf(other)];
  assert(at > 0 && otherAt > 0 && one.length === other.length, `the model has ${one} and ${other}`);
  bytes.write(other, at, 'latin1');
  bytes.write(one, otherAt, 'latin1');
}

/** In the file: the key, the number of the type F32, the value. */
function halveRotaryBase(bytes: Buffer): void {
  const key = '.rope.freq_base';
  const at = bytes.indexOf(key) + key.length;
  assert(at > key.length && bytes.readUInt32LE(at) === typeF32, 'the model has a rotary base');
  bytes.writeFloatLE(bytes.readFloatLE(at + 4) / 2, at + 4);
}

const typeF32 = 6;

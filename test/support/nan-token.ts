import { open } from 'node:fs/promises';
import { readGguf } from '../../src/ggml/gguf.ts';

/** Writes NaN into a token's row of an F32 embedding: every request with this token computes NaN. */
export async function writeNanToken(path: string, token: number): Promise<void> {
  const embedding = (await readGguf(path)).tensors.get('token_embd.weight');
  if (embedding?.type.name !== 'F32') throw new Error('the embedding must be F32');
  const row = new Float32Array(embedding.ne[0]).fill(Number.NaN);
  const handle = await open(path, 'r+');
  await handle.write(new Uint8Array(row.buffer), 0, row.byteLength, embedding.fileOffset + token * row.byteLength);
  await handle.close();
}

/**
 * Changes bytes of valid files at random. The reader must return a file or throw a KvasirError. If the reader and the
 * vocabulary check accept the file, libllama must load its vocabulary without ending the process.
 *
 * Does not cover: changes in tensor data, which is only numbers; and how libllama loads tensors, which the engine does
 * not use. If libllama aborts, this process ends (vitest reports the crash), and the corrupt file stays in the
 * temporary folder of the system as `kvasir-gguf-fuzz-<pid>.gguf`.
 */
import { copyFileSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ggufBytes, sentencePieceKeys } from '../../test/support/gguf-bytes.ts';
import { inLongForm } from '../../test/support/long-form.ts';
import { temporaryFolder, writeTinyModel } from '../../test/support/tiny-model.ts';
import { KvasirError } from '../base/errors.ts';
import { Prng } from '../base/prng.ts';
import { openTokenizer } from '../tokenizer/llama-tokenizer.ts';
import { readGguf } from './gguf.ts';
import { readModelConfig } from './model-config.ts';

const seed = Number(process.env.KVASIR_SEED ?? 20261120);
const rounds = Number(process.env.KVASIR_FUZZ_ROUNDS ?? inLongForm(800, 200));
const folder = temporaryFolder();
const whole = folder.file('whole.gguf');
const damaged = join(tmpdir(), `kvasir-gguf-fuzz-${process.pid}.gguf`);
const sentencePiece = folder.file('sentencepiece.gguf');

beforeAll(async () => {
  await writeTinyModel(whole, {
    architecture: 'llama',
    type: 'Q8_0',
    layers: 1,
    embedding: 64,
    headDim: 16,
    feedForward: 64,
    vocab: 272,
  });
  writeFileSync(sentencePiece, ggufBytes({ keys: sentencePieceKeys() }));
});
afterAll(() => {
  folder.remove();
  rmSync(damaged, { force: true });
});

type Outcome = 'refused by the reader' | 'refused by the vocabulary check' | 'refused by the model check' | 'accepted';

/** Loads the corrupt file. An error that is not in the catalogue fails the test. */
async function tryToLoad(): Promise<Outcome> {
  let outcome: Outcome = 'refused by the reader';
  try {
    const file = await readGguf(damaged);
    outcome = 'refused by the vocabulary check';
    const tokenizer = await openTokenizer(file);
    try {
      const tokens = tokenizer.encode('<|im_start|>user\nüber 🙂 \0 fox<|im_end|>', { parseSpecial: true });
      tokenizer.decode(tokens, { skipSpecialTokens: false });
      for (let id = 0; id < tokenizer.vocabSize; id++) tokenizer.tokenBytes(id, { special: true });
    } finally {
      tokenizer.close();
    }
    outcome = 'refused by the model check';
    readModelConfig(file);
    return 'accepted';
  } catch (error) {
    if (error instanceof KvasirError) return outcome;
    throw error;
  }
}

it('a file that is truncated anywhere is refused as truncated', async () => {
  const { size } = statSync(whole);
  const { tensors, dataOffset } = await readGguf(whole);
  const edges = [...tensors.values()].flatMap(({ fileOffset, byteLength }) => [fileOffset, fileOffset + byteLength]);
  const cuts = new Set([...Array(80).keys(), ...edges.flatMap((edge) => [edge - 1, edge, edge + 1])]);
  for (let cut = 80; cut < size; cut += cut < dataOffset ? 61 : 997) cuts.add(cut);
  const lastEnd = Math.max(...edges);
  for (const cut of cuts) {
    if (cut < 0 || cut >= lastEnd) continue;
    copyFileSync(whole, damaged);
    truncateSync(damaged, cut);
    const error = await readGguf(damaged).catch((reason: unknown) => reason);
    expect(error, `cut at ${cut}`).toBeInstanceOf(KvasirError);
    const code = cut < 4 ? 'KVASIR_NOT_GGUF' : 'KVASIR_GGUF_TRUNCATED';
    expect((error as KvasirError).code, `cut at ${cut}`).toBe(code);
  }
});

async function damageOften(path: string): Promise<Set<Outcome>> {
  const prng = new Prng(seed);
  const original = readFileSync(path);
  const { dataOffset } = await readGguf(path);
  const outcomes = new Set<Outcome>();
  for (let round = 0; round < rounds; round++) {
    const bytes = Buffer.from(original);
    const hits = prng.between(1, 3);
    for (let hit = 0; hit < hits; hit++) damage(bytes, dataOffset, prng);
    writeFileSync(damaged, bytes);
    outcomes.add(await tryToLoad());
  }
  return outcomes;
}

it(`a model with changes anywhere in its header is loaded or refused with a KvasirError (seed ${seed})`, async () => {
  const outcomes = await damageOften(whole);
  // Every outcome occurred, so all were tested.
  expect(outcomes).toEqual(
    new Set(['accepted', 'refused by the reader', 'refused by the vocabulary check', 'refused by the model check']),
  );
});

it(`a SentencePiece vocabulary with changes is refused with a KvasirError (seed ${seed})`, async () => {
  const outcomes = await damageOften(sentencePiece);
  expect(outcomes).toEqual(
    new Set(['refused by the reader', 'refused by the vocabulary check', 'refused by the model check']),
  );
});

/** Changes one bit, one byte or one number of the header, or copies some bytes, to values that often cause errors. */
function damage(bytes: Buffer, headerBytes: number, prng: Prng): void {
  const at = prng.between(4, headerBytes - 9);
  switch (prng.between(0, 3)) {
    case 0:
      bytes.writeUInt8(bytes.readUInt8(at) ^ (1 << prng.between(0, 7)), at);
      break;
    case 1:
      bytes.writeUInt8(prng.pick([0, 1, 0x20, 0x7f, 0x80, 0xff]), at);
      break;
    case 2:
      bytes.writeUInt32LE(prng.pick([0, 1, 6, 8, 9, 255, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff]), at);
      break;
    default: {
      const length = prng.between(1, 16);
      const from = prng.between(4, headerBytes - 33);
      bytes.copy(bytes, Math.min(at, headerBytes - length), from, from + length);
    }
  }
}

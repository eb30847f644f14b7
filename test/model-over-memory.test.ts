/** A model that needs more memory than there is, is mapped; with `--no-mmap` it is refused before its weights are read. */
import { EventEmitter } from 'node:events';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { availableMemory } from '../src/base/available-memory.ts';
import { canMapFiles } from '../src/base/mapped-file.ts';
import { runCli } from '../src/cli/run-cli.ts';
import { serveCommand } from '../src/cli/serve.ts';
import { checkMemory, mappingNote, smallContext } from '../src/compose-memory.ts';
import { bytesOnCpu } from '../src/compose-placement.ts';
import type { EngineOptions } from '../src/engine/options.ts';
import { resolveEngineOptions } from '../src/engine/options.ts';
import { readGguf, weightBytesOf } from '../src/ggml/gguf.ts';
import { readModelConfig } from '../src/ggml/model-config.ts';
import { createEngine, LLM } from '../src/index.ts';
import { wholeModel } from '../src/runner/contract.ts';
import { stepBytes } from '../src/runner/step-bytes.ts';
import { needs } from './support/needs.ts';
import { runHere } from './support/run-here.ts';
import { temporaryFolder, writeTinyHeader, writeTinyModel } from './support/tiny-model.ts';
import { until } from './support/until.ts';

const folder = temporaryFolder();
/** A sparse file: a real header, and more terabytes of weights than a machine has memory. */
const huge = folder.file('huge.gguf');
const small = folder.file('small.gguf');
beforeAll(async () => {
  const shape = { layers: 6, embedding: 65_536, headDim: 128, heads: 512, feedForward: 524_288 };
  await writeTinyHeader(huge, { architecture: 'qwen3', type: 'F32', context: 512, ...shape });
  await writeTinyModel(small, { architecture: 'qwen3', type: 'Q8_0', context: 4096 });
});
afterAll(() => folder.remove());

const code = 'KVASIR_MEMORY_TOO_SMALL';
const noMaps = 'a system that maps files';
const figures =
  /huge\.gguf needs \d.* TiB of memory \(\d.* TiB for weights, .* for the KV pool, .* for steps\), and .* (free|left)/;

it('createEngine and LLM refuse it, with the figures', async () => {
  const progress: number[] = [];
  const options = {
    model: huge,
    mmap: false,
    device: 'cpu',
    onProgress: (bytes: number) => progress.push(bytes),
  } as const;
  await expect(createEngine(options)).rejects.toMatchObject({ code, message: expect.stringMatching(figures) });
  await expect(new LLM(options).generate('x')).rejects.toMatchObject({ code });
  await expect(createEngine({ ...options, pipelineParallelSize: 2 })).rejects.toMatchObject({ code });
  expect(progress).toEqual([]);
});

it.each([
  ['generate', ['generate', '--model', huge, '--prompt', 'x']],
  ['chat', ['chat', huge]],
  ['serve', ['serve', huge, '--port', '0']],
])('kvasir %s refuses it', async (_, args) => {
  const { code: exitCode, stderr } = await runHere([...args, '--no-mmap', '--device', 'cpu']);
  expect([exitCode, stderr]).toEqual([1, expect.stringMatching(figures)]);
  expect(stderr).toContain('--skip-memory-check');
});

it('kvasir serve refuses a small model with a KV pool that is too large', async () => {
  const pool = `${Math.floor((2 * availableMemory().bytes) / 1024 ** 2)}MiB`;
  const { stderr } = await runHere(['serve', small, '--port', '0', '--device', 'cpu', '--kv-cache-memory', pool]);
  expect(stderr).toMatch(/small\.gguf needs .* for the KV pool, .* and .* (free|left)/);
});

describe('the memory that is needed', () => {
  async function check(options: Partial<EngineOptions>, free: number, more = { draftBytes: 0, hostTierBytes: 0 }) {
    const file = await readGguf(small);
    const model = readModelConfig(file);
    const resolved = resolveEngineOptions({ model: small, ...options });
    const placed = { stages: [{ stage: wholeModel(model.layerCount), device: 'cpu' }], gpu: undefined } as const;
    const { poolBytes, weightBytes } = bytesOnCpu(resolved, { file, model }, placed);
    expect(weightBytes).toBe(weightBytesOf(file));
    const measure = () => ({ bytes: free, text: `${free} bytes are free` });
    const isMapped = checkMemory(resolved, { file, model, ...more }, placed, measure);
    return { poolBytes, isMapped };
  }
  const poolOf = async (...args: Parameters<typeof check>): Promise<number> => (await check(...args)).poolBytes;
  const MIB = 1024 ** 2;

  it('is weights, steps and a given pool; a pool of the default size takes what is left', async () => {
    const plenty = 1024 * MIB;
    expect(await poolOf({}, plenty)).toBeLessThan(MIB);
    expect(await poolOf({ kvCacheMemory: 512 * MIB }, plenty)).toBeGreaterThan(500 * MIB);
    expect(await poolOf({ maxModelLen: 4096 }, plenty)).toBeGreaterThan(await poolOf({ maxModelLen: 64 }, plenty));
    await expect(check({ kvCacheMemory: 512 * MIB }, 500 * MIB)).rejects.toThrow(
      /512 MiB for the KV pool.* 524288000 bytes are free/,
    );
    await expect(check({ mmap: false }, 1000)).rejects.toMatchObject({ code });
  });

  it('counts a draft model and tiers in host memory', async () => {
    const more = { draftBytes: 300 * MIB, hostTierBytes: 400 * MIB };
    expect(await poolOf({}, 1024 * MIB, more)).toBeGreaterThan(0);
    await expect(check({ mmap: false }, 600 * MIB, more)).rejects.toThrow(
      '300 MiB for the draft model, 400 MiB for the host tier',
    );
  });

  it('is not asked with skipMemoryCheck', async () => {
    expect(await poolOf({ skipMemoryCheck: true, kvCacheMemory: 512 * MIB }, 1000)).toBeGreaterThan(0);
  });

  it(
    'is without the weights if they are mapped: by default if copies do not fit',
    needs(canMapFiles(), noMaps),
    async () => {
      const file = await readGguf(small);
      const step = stepBytes(readModelConfig(file), resolveEngineOptions({ model: small }));
      const others = step + (await poolOf({}, 1024 * MIB));
      const all = others + weightBytesOf(file);
      expect(await check({}, all)).toMatchObject({ isMapped: false });
      expect(await check({ mmap: true }, all)).toMatchObject({ isMapped: true });
      expect(await check({}, all - 1)).toMatchObject({ isMapped: true });
      expect(await check({}, others)).toMatchObject({ isMapped: true });
      await expect(check({ mmap: false }, all - 1)).rejects.toMatchObject({ code });
      const message = expect.not.stringContaining('for weights');
      await expect(check({}, others - 1)).rejects.toMatchObject({ code, message });
      expect(await check({ skipMemoryCheck: true, mmap: true }, 0)).toMatchObject({ isMapped: true });
    },
  );

  it('is told with what happens', () => {
    expect(mappingNote({}, true)).toContain('--mmap');
    expect(mappingNote({ mmap: true }, false)).toContain('are copied');
    for (const isMapped of [true, false]) expect(mappingNote({ mmap: isMapped }, isMapped)).toBeUndefined();
    expect(mappingNote({}, false)).toBeUndefined();
  });
});

it('a pool that limits the context to few tokens is told of, with what was understood', async () => {
  const warnings: string[] = [];
  const onEvent = ({ message }: { readonly message: string }) => void warnings.push(message);
  await using engine = await createEngine({ model: small, threads: 1, kvCacheMemory: 4096, onEvent });
  expect(engine.model.maxModelLen).toBe(16);
  expect(warnings.join('\n')).toContain(
    'at most 16 tokens, of the 4096 of the model, because --kv-cache-memory is 4 KiB (4096 bytes)',
  );
  const contextLength = 4096;
  expect(smallContext({}, { contextLength }, 500)).toContain('because little memory is free');
  expect(smallContext({ kvCacheMemory: 4 }, { contextLength }, 1024)).toBeUndefined();
  expect(smallContext({ kvCacheMemory: 4, maxModelLen: 64 }, { contextLength }, 64)).toBeUndefined();
  expect(smallContext({ kvCacheMemory: 4 }, { contextLength: 512 }, 512)).toBeUndefined();
});

it('one of several models is refused when a request asks for it, and the others are served', async () => {
  const signals = new EventEmitter();
  let log = '';
  const stderr = {
    write(text: string) {
      log += text;
    },
  };
  const context = { version: '1', createEngine, stdout: stderr, stderr, stdin: Readable.from([]), signals };
  const line = ['serve', '--port', '0', '--model-dir', folder.file('.'), '--device', 'cpu'];
  const running = runCli(line, { ...context, exitNow: () => undefined }, [serveCommand]);
  await until(() => log.includes('serving models=2'));
  const [origin] = /http:\S+/.exec(log)!;
  const asked = { method: 'POST', headers: { 'content-type': 'application/json' } };
  const answer = await fetch(`${origin}/v1/completions`, { ...asked, body: '{"model":"huge","prompt":"x"}' });
  expect([answer.status >= 400, await answer.text()]).toEqual([
    true,
    expect.stringMatching(/huge.* needs \d+ bytes of memory; the limit of all models is \d+/),
  ]);
  signals.emit('SIGTERM');
  expect(await running).toBe(0);
});

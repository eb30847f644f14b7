import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { formatTable } from '../src/base/table.ts';
import { inLongForm, itInLongForm } from '../test/support/long-form.ts';
import { runBench } from '../test/support/run-bench.ts';
import { temporaryFolder, writeTinyModel } from '../test/support/tiny-model.ts';
import type { InteractiveRow } from './interactive/interactive.ts';
import { openDecodeBytes } from './latency/decode-limit.ts';
import { comparison, type LatencyRow, measureLatency } from './latency/latency.ts';
import { MemoryReaders } from './latency/memory-bandwidth.ts';
import type { TierThroughputRow } from './offloading/throughput.ts';
import type { SpeculationRow } from './speculation/speculation.ts';
import { median } from './statistics.ts';
import { DecodeWindow } from './subject/decode-window.ts';
import { overheadBetween } from './subject/engine-subject.ts';
import type { Rate, Subject } from './subject/subject.ts';
import type { ThroughputRow } from './throughput/throughput.ts';

const folder = temporaryFolder();
const model = folder.file('tiny.gguf');
beforeAll(() => writeTinyModel(model, { architecture: 'qwen3', type: 'Q8_0' }));
afterAll(() => folder.remove());

const common = (): string[] => ['--model', model, '--threads', '1', '--kv-cache-memory', '16MiB', '--peer', 'libllama'];

describe('kvasir bench', () => {
  it('latency has a row per depth with both engines, and JSON as the last line', async () => {
    const lengths = ['--prompt-len', '32', '--gen-len', '4', '--depth', '0,48', '--repetitions', '2'];
    const { code, out, err } = await runBench('latency', ...common(), ...lengths, '--json');
    expect(code).toBe(0);
    expect(err).toMatch(/prefill 32 +48 /);
    const { rows } = JSON.parse(out.trimEnd().split('\n').at(-1) ?? '') as { rows: LatencyRow[] };
    expect(rows.map(({ depth }) => depth)).toEqual([0, 48]);
    for (const { prefill, decode, decodeLimit = 0, decodeOfLimit = 0, overheadMs } of rows) {
      expect(Math.min(decodeLimit, decodeOfLimit)).toBeGreaterThan(0);
      for (const { kvasir: ours = 0, libllama = 0, ratio = 0 } of [prefill!, decode]) {
        expect(Math.min(ours, libllama)).toBeGreaterThan(0);
        expect(ratio).toBeCloseTo(ours / libllama, 1);
      }
      expect(Number.isFinite(overheadMs)).toBe(true);
    }
  });

  it.each(inLongForm(['suffix', 'ngram'], []))(
    'speculation measures drafts of %s, also for an output like earlier ones',
    async (method) => {
      const engine = ['--model', model, '--threads', '1', '--kv-cache-memory', '16MiB'];
      const { code, out, err } = await runBench(
        'speculation',
        ...engine,
        ...['--method', method, '--gen-len', '16', '--repetitions', '1', '--json'],
      );
      expect(code).toBe(0);
      expect(err).toContain('tokens per step');
      const { rows } = JSON.parse(out.trimEnd().split('\n').at(-1) ?? '') as { rows: SpeculationRow[] };
      expect(rows.map(({ task }) => task).slice(0, 2)).toEqual(['rewriting', 'like earlier outputs']);
      for (const { acceptance, draftedPerToken, tokensPerStep } of rows) {
        expect(tokensPerStep).toBeGreaterThanOrEqual(1);
        expect(acceptance === null).toBe(draftedPerToken === 0);
        expect(acceptance ?? 1).toBeLessThanOrEqual(1);
      }
    },
  );

  it('interactive measures a stream and a short prompt beside long prompts, with a limit, without, and with libllama', async () => {
    const lengths = ['--prompts', '2', '--prompt-len', '150', '--stream-prompt-len', '8', '--gen-len', '6'];
    const { code, out, err } = await runBench(
      'interactive',
      ...common(),
      ...['--max-num-batched-tokens', '32', '--short-len', '5', '--repetitions', '1', '--json'],
      ...lengths,
    );
    expect(code).toBe(0);
    expect(err).toContain('prompt tok/s');
    const { rows } = JSON.parse(out.trimEnd().split('\n').at(-1) ?? '') as { rows: InteractiveRow[] };
    expect(rows.map(({ name }) => name)).toEqual(['kvasir, auto', 'kvasir, no limit', 'libllama']);
    for (const { aloneMs, aloneP99Ms, besideMs, ratio, promptTokensPerSecond, shortMs } of rows) {
      expect(aloneP99Ms).toBeGreaterThanOrEqual(aloneMs);
      expect(Math.min(aloneMs, besideMs.p50, ratio, promptTokensPerSecond)).toBeGreaterThan(0);
      expect(Math.min(shortMs.alone, shortMs.behind)).toBeGreaterThan(0);
      expect(besideMs.max).toBeGreaterThanOrEqual(besideMs.p99);
    }
  });

  it('latency has a row for each number of requests that decode at once, with the overhead of a step', async () => {
    const lengths = ['--prompt-len', '16', '--gen-len', '6', '--depth', '0,48', '--batch', '1,3', '--repetitions', '1'];
    const { code, out, err } = await runBench('latency', ...common(), ...lengths, '--json');
    expect(code).toBe(0);
    expect(err).toMatch(/decode 6 +48 +3 +\d/);
    const { rows } = JSON.parse(out) as { rows: LatencyRow[] };
    expect(rows.map(({ batch, depth }) => [batch, depth])).toEqual([
      [1, 0],
      [1, 48],
      [3, 0],
      [3, 48],
    ]);
    for (const row of rows) {
      expect(row.prefill === undefined).toBe(row.batch > 1);
      expect(row.decode.ratio).toBeGreaterThan(0);
      expect(row.overheadShare).toBeLessThanOrEqual(1);
      expect(row.overheadMs).toBeGreaterThanOrEqual(0);
      expect(row.sampleMs! + row.prepareMs!).toBeGreaterThan(0);
      if (process.platform === 'linux') expect(row.besideMs).toBeGreaterThanOrEqual(0);
    }
  });

  itInLongForm('latency measures depths of thousands of tokens in ascending order', async () => {
    const deep = folder.file('deep.gguf');
    const shape = { heads: 2, headsKv: 1, feedForward: 256, context: 10_000 };
    await writeTinyModel(deep, { architecture: 'qwen3', type: 'Q8_0', ...shape });
    const lengths = ['--prompt-len', '16', '--gen-len', '2', '--depth', inLongForm('4096,0,2048', '2048,0,1024')];
    const { code, out } = await runBench(
      'latency',
      ...common(),
      ...lengths,
      '--model',
      deep,
      '--repetitions',
      '1',
      '--json',
    );
    expect(code).toBe(0);
    const { rows } = JSON.parse(out) as { rows: LatencyRow[] };
    expect(rows.map(({ depth }) => depth)).toEqual(inLongForm([0, 2048, 4096], [0, 1024, 2048]));
    for (const { decode } of rows) expect(decode.ratio).toBeGreaterThan(0);
  });

  it.each(inLongForm<readonly ('gemma3' | 'granitehybrid')[]>(['gemma3', 'granitehybrid'], []))(
    'latency measures depths of a model %s, of which libllama cannot remove the last tokens',
    async (architecture) => {
      const path = folder.file(`${architecture}.gguf`);
      await writeTinyModel(path, { architecture, type: 'Q8_0' });
      const lengths = ['--prompt-len', '16', '--gen-len', '4', '--depth', '0,100,300', '--repetitions', '2'];
      const { code, out } = await runBench('latency', ...common(), ...lengths, '--model', path, '--json');
      expect(code).toBe(0);
      const { rows } = JSON.parse(out) as { rows: LatencyRow[] };
      expect(rows.map(({ depth }) => depth)).toEqual([0, 100, 300]);
      for (const { prefill, decode } of rows) expect(Math.min(prefill!.ratio!, decode.ratio!)).toBeGreaterThan(0);
    },
  );

  const workloads: [name: string, flags: string, expected: Partial<ThroughputRow>][] = [
    [
      'shared-prefix',
      '--requests 1,3 --prefix-len 40 --prompt-len 8 --gen-len 4',
      { prefixLength: 40, promptTokens: 144, generatedTokens: 12 },
    ],
    [
      'independent',
      '--requests 1,3 --prompt-len 20 --gen-len 3',
      { prefixLength: 0, promptTokens: 60, generatedTokens: 9 },
    ],
    ['sharegpt', '--requests 1,3', { prefixLength: 0 }],
    [
      'multi-turn',
      '--requests 1,3 --prompt-len 20 --gen-len 4 --turns 3',
      { prefixLength: 0, promptTokens: 3 * (20 + 44 + 68), generatedTokens: 36 },
    ],
  ];
  it.each(inLongForm(workloads, workloads.slice(0, 1)))(
    'throughput of %s has a row for each number of requests',
    async (workload, flags, expected) => {
      const args = ['--workload', workload, ...flags.split(' '), '--repetitions', '1'];
      const { code, out, err } = await runBench('throughput', ...common(), ...args, '--json');
      expect(code).toBe(0);
      expect(err).toMatch(new RegExp(`${workload}, 3 requests: generated tok/s +\\d`));
      const { rows } = JSON.parse(out) as { rows: ThroughputRow[] };
      expect(rows).toMatchObject([{ requests: 1 }, { requests: 3, ...expected }]);
      for (const row of rows) {
        const { throughput, total } = row;
        const { kvasir: ours = 0, libllama = 0 } = row.lastTokenSeconds;
        expect(throughput.ratio).toBeCloseTo(libllama / ours, 1);
        expect(total.kvasir! / throughput.kvasir!).toBeCloseTo(1 + row.promptTokens / row.generatedTokens, 1);
        for (const name of ['kvasir', 'libllama']) {
          for (const { p50, p99 } of [row.firstTokenMs[name]!, row.betweenTokensMs[name]!]) {
            expect(p50).toBeGreaterThan(0);
            expect(p99).toBeGreaterThanOrEqual(p50);
          }
        }
      }
    },
  );

  itInLongForm('offloading compares pairs of runs with tiers and without, and the CPU time of both', async () => {
    const lengths = ['--requests', '2', '--prompt-len', '40', '--gen-len', '3', '--repetitions', '1'];
    const flags = ['--model', model, '--threads', '1', '--kv-cache-memory', '16MiB', '--kv-tier', 'host:64MiB'];
    const { code, out, err } = await runBench(
      'offloading',
      '--parts',
      'cost',
      '--control',
      ...flags,
      ...lengths,
      '--json',
    );
    expect(code).toBe(0);
    expect(err).toMatch(/nothing reused, tok\/s +\d.* no tiers \d.* \(\d.* to \d.*\) +>= 0\.97/);
    const { rows } = JSON.parse(out) as { rows: TierThroughputRow[] };
    expect(rows).toMatchObject([
      { kind: 'cost', storedBlocks: 4, writtenBlocks: 0, cost: { pairs: 4 }, control: { pairs: 4 } },
    ]);
    const { throughput, cost } = rows[0]!;
    expect(throughput.ratio).toBe(cost.throughputRatio.median);
    for (const { median, low, high } of [cost.throughputRatio, cost.cpuRatio]) {
      expect(low).toBeLessThanOrEqual(median);
      expect(high).toBeGreaterThanOrEqual(median);
    }
    for (const ms of cost.cpuMsPerToken) expect(ms).toBeGreaterThan(0);
  });

  it('ends with an error if the pool is too small for the context', async () => {
    const lengths = ['--prompt-len', '64', '--gen-len', '1', '--depth', '1000', '--repetitions', '1'];
    const { code, err } = await runBench('latency', ...common(), ...lengths, '--kv-cache-memory', '1MiB');
    expect(code).toBe(1);
    expect(err).toMatch(/error: /);
  });

  it('ends with an error if a context is longer than the model allows', async () => {
    const lengths = ['--requests', '1', '--prompt-len', '6000', '--repetitions', '1'];
    const { code, err } = await runBench('throughput', ...common(), ...lengths, '--peer', 'none');
    expect(code).toBe(1);
    expect(err).toMatch(/error: /);
  });

  it('refuses wrong flags and unknown commands with exit code 2', async () => {
    expect((await runBench('throughput', '--requests', '1,0')).err).toContain('from 1 to 256');
    expect((await runBench('latency', '--peer-url', 'localhost:1')).err).toContain('must be a URL');
    const both = await runBench('latency', '--peer', 'libllama', '--peer-url', 'http://localhost:1');
    expect(both).toMatchObject({ code: 2, err: expect.stringContaining('cannot be used with') });
    expect(await runBench('latncy')).toMatchObject({ code: 2 });
    expect((await runBench('latency', '--depth', '1,x')).err).toContain('whole numbers with commas');
  });
});

describe('the limit of decoding', () => {
  it('counts all weights and the KV of the context, without an embedding that is not the head', async () => {
    const tied = folder.file('tied.gguf');
    await writeTinyModel(tied, { architecture: 'qwen3', type: 'Q8_0', tied: true });
    const [untiedBytes, tiedBytes] = [await openDecodeBytes(model, 'f16'), await openDecodeBytes(tied, 'f16')];
    expect(untiedBytes(10) - untiedBytes(0)).toBe(10 * 2 * 2 * 128 * 2);
    // Each model reads one matrix of 320 rows of 256: the head, or the tied head and embedding.
    expect(untiedBytes(0)).toBe(tiedBytes(0));
    const q8Bytes = await openDecodeBytes(model, 'q8_0');
    expect(q8Bytes(10) - q8Bytes(0)).toBe((10 * 2 * 2 * 128 * 34) / 32);
  });

  it('counts the experts that a token uses', async () => {
    const [one, all] = [folder.file('one.gguf'), folder.file('all.gguf')];
    const experts = { count: 4, feedForwardLength: 256 };
    await writeTinyModel(one, { architecture: 'qwen3moe', type: 'Q8_0', experts: { ...experts, used: 1 } });
    await writeTinyModel(all, { architecture: 'qwen3moe', type: 'Q8_0', experts: { ...experts, used: 4 } });
    const [bytesOfOne, bytesOfAll] = [await openDecodeBytes(one, 'f16'), await openDecodeBytes(all, 'f16')];
    // Two layers, three matrices of 256 x 256, and three more experts.
    expect(bytesOfAll(0) - bytesOfOne(0)).toBe((2 * 3 * 3 * 256 * 256 * 34) / 32);
  });

  it('uses the bandwidth of several threads together', async () => {
    const readers = await MemoryReaders.open(2, 8 << 20);
    for (let i = 0; i < 2; i++) expect(await readers.bandwidth()).toBeGreaterThan(1e7);
    await readers.close();
  });
});

describe('measuring', () => {
  it('runs subjects in turn and reports medians', async () => {
    const calls: string[] = [];
    const parts = { prepareMs: 0.2, sampleMs: 0.3, besideMs: 0.5 };
    const subject = (name: string, rates: readonly number[]): Subject => {
      let next = 0;
      return {
        name,
        prepare: async () => void calls.push(`${name} prepares`),
        prefill: async () => ({ tokens: rates[next++ % rates.length] ?? 0, seconds: 1 }),
        decode: async () => {
          calls.push(name);
          return { tokens: 10, seconds: 2, overhead: { ...parts, stepMs: 4, outsideMs: 1 } };
        },
        run: () => Promise.reject(new Error('no workload is measured')),
      };
    };
    // The first value of each subject is the warm-up.
    const subjects = [subject('a', [1, 10, 30, 20]), subject('b', [1, 10, 10, 10])];
    const common = { depths: [7], promptLength: 1, generateLength: 1, onProgress: () => undefined };
    const rows = await measureLatency(subjects, { ...common, batch: 1, repetitions: 3 });
    const decode = { decode: { a: 5, b: 5, ratio: 1 }, overheadMs: 1, overheadShare: 0.25, ...parts };
    expect(rows).toEqual([{ depth: 7, batch: 1, prefill: { a: 20, b: 10, ratio: 2 }, ...decode }]);
    expect(calls.join(' ')).toBe('a prepares a b prepares b a b b a a b');
    // Prompts are measured one at a time.
    expect(await measureLatency(subjects, { ...common, batch: 2, repetitions: 1 })).toEqual([
      { depth: 7, batch: 2, ...decode },
    ]);
  });

  it('compares each decode with the speed of memory before and after it', async () => {
    const rates = [0, 10, 10, 40];
    const decode = async (): Promise<Rate> => ({ tokens: rates.shift()!, seconds: 1 });
    const ours: Subject = {
      name: 'a',
      prepare: async () => undefined,
      prefill: () => Promise.reject(new Error('prompts are not measured')),
      decode,
      run: () => Promise.reject(new Error('no workload is measured')),
    };
    const bandwidths = [1800, 2200, 4000, 4000, 5000, 3000];
    const bytes: number[] = [];
    const memory = {
      bandwidth: async () => bandwidths.shift()!,
      bytesAt: (tokens: number) => {
        bytes.push(tokens);
        return 100 + tokens;
      },
    };
    const lengths = { depths: [50], promptLength: 1, generateLength: 1 };
    const options = { ...lengths, batch: 2, repetitions: 3, memory, onProgress: () => undefined };
    const [row] = await measureLatency([ours], options);
    // The limits are 2 * (2000, 4000 and 4000) / 200: a step reads the weights once, and both contexts.
    expect(row).toMatchObject({ decode: { a: 10 }, decodeLimit: 40, decodeOfLimit: 0.5 });
    expect(new Set(bytes)).toEqual(new Set([100]));
  });

  it('the overhead of a step is its time without the time in which ggml computes, and its parts', () => {
    const from = { steps: 3, computeMs: 100, prepareMs: 5, sampleMs: 7, atMs: 1_000, cpuMs: 40 };
    const to = { steps: 7, computeMs: 172, prepareMs: 9, sampleMs: 15, atMs: 1_100, cpuMs: 72 };
    const overhead = { stepMs: 25, outsideMs: 7, prepareMs: 1, sampleMs: 2 };
    expect(overheadBetween(from, to)).toEqual({ ...overhead, besideMs: 1 });
    // Some systems do not report the CPU time of a thread.
    expect(overheadBetween({ ...from, cpuMs: undefined }, to)).toEqual(overhead);
  });

  it('counts decoding from the first token of the last sequence until the first sequence is done', () => {
    let now = 0;
    const window = new DecodeWindow(2, 4, () => now);
    const arrivals = [
      [0, 1], // Only one sequence generates.
      [1, 1],
      [0, 1],
      [1, 0], // An empty chunk.
      [1, 2],
      [0, 2], // The last tokens of a sequence.
      [1, 1],
    ] as const;
    for (const [sequence, count] of arrivals) {
      now++;
      window.add(sequence, count);
    }
    expect(window.result()).toEqual({ from: 2, to: 5, tokens: 3 });
    const never = new DecodeWindow(2, 2, () => now);
    for (const sequence of [0, 0, 1, 1]) never.add(sequence, 1);
    expect(() => never.result()).toThrow('2 requests');
  });

  it('computes medians, and a ratio only with a peer', () => {
    expect([median([3, 1, 2]), median([4, 1, 2, 3]), median([5])]).toEqual([2, 2.5, 5]);
    expect(comparison(['kvasir'], [1.23456])).toEqual({ kvasir: 1.235 });
  });

  it('aligns numbers to the right', () => {
    expect(
      formatTable(
        ['a', 'bcd'],
        [
          ['long', 1],
          ['x', 100],
        ],
      ),
    ).toBe('a     bcd\nlong    1\nx     100\n');
  });
});

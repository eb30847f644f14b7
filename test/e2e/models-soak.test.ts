/**
 * Three models in the memory of two, under load, while their processes are killed, stopped and run out of memory, and the server gets
 * SIGTERM. Each request is answered with the right text, or refused with a sentence. The default form has no
 * faults, the long form takes two minutes; by hand, for 30:
 *
 *     KVASIR_MODELS_SOAK_MINUTES=30 npx vitest run test/e2e/models-soak.test.ts
 */
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Prng } from '../../src/base/prng.ts';
import { buildCommand, killCommands, mainInModules, serve } from '../support/cli-process.ts';
import { isLongForm } from '../support/long-form.ts';
import { modelFaults, soakMinutes } from '../support/model-faults.ts';
import { allGone, childrenOf, commandOf } from '../support/processes.ts';

const minutes = soakMinutes(isLongForm ? 2 : 0);
const names = ['first', 'second', 'third'] as const;
type Name = (typeof names)[number];
const prompts = Array.from({ length: minutes > 0 ? 8 : 1 }, (_, i) => `Once upon a time, number ${i},`);
const clients = 6;
const answerMaxMs = 120_000;
const healthMaxMs = 5000;

const folder = mkdtempSync(join(tmpdir(), 'kvasir-soak-'));
const faults = modelFaults(folder);
const prng = new Prng(Number(process.env.KVASIR_SEED ?? Date.now()));
const pick = <T>(list: readonly T[]): T => list[prng.between(0, list.length - 1)]!;
const counts: Record<string, number> = {};
const count = (what: string): void => {
  counts[what] = (counts[what] ?? 0) + 1;
};
const problems: string[] = [];
let server: Awaited<ReturnType<typeof serve>>;
/** Between SIGTERM and the next start: connections may end. */
let isEnding = false;
let isOver = false;
/** By model and prompt, without faults. */
const texts = new Map<string, string>();

beforeAll(async () => {
  mkdirSync(join(folder, 'models'));
  for (const name of names) copyFileSync('models/kvasir-demo.gguf', join(folder, 'models', `${name}.gguf`));
  await buildCommand();
}, 60_000);
afterAll(() => {
  killCommands();
  rmSync(folder, { recursive: true });
});

async function startServer(): Promise<void> {
  const args = ['--model-dir', join(folder, 'models'), '--models-memory', '600MiB', '--shutdown-timeout', '10'];
  const options = ['--worker-timeout', '5'];
  server = await serve([...args, ...options], faults.environment, { main: mainInModules });
}

interface Asked {
  readonly model: Name;
  readonly prompt: string;
}

/** The text of an answer, or undefined if it was refused with a sentence. */
type Ask = (asked: Asked) => Promise<string | undefined>;

async function refusal(answer: Response): Promise<undefined> {
  const { error } = (await answer.json()) as { readonly error?: { readonly code: string; readonly message: string } };
  if (error === undefined || !/^[A-Z].*[.!]$/s.test(error.message))
    problems.push(`${answer.status} without a sentence`);
  if (answer.status !== 503) problems.push(`${answer.status}: ${error?.message}`);
  count(`refused: ${error?.code}`);
}

const plain: Ask = async ({ model, prompt }) => {
  const answer = await server.post('/v1/completions', { model, prompt, max_tokens: 24, temperature: 0 });
  if (answer.status !== 200) return refusal(answer);
  const { choices } = (await answer.json()) as { choices: readonly [{ text: string; finish_reason: string }] };
  return checkFinish(choices[0].finish_reason) ? choices[0].text : undefined;
};

const streamed: Ask = async ({ model, prompt }) => {
  const answer = await server.post('/v1/completions', { model, prompt, max_tokens: 24, temperature: 0, stream: true });
  if (answer.status !== 200) return refusal(answer);
  let text = '';
  let isWhole = false;
  for (const line of (await answer.text()).split('\n\n').filter((event) => event !== '')) {
    if (line === 'data: [DONE]') continue;
    const event = JSON.parse(line.slice('data: '.length)) as {
      readonly error?: { readonly code: string; readonly message: string };
      readonly choices: readonly [{ readonly text: string; readonly finish_reason: string | null }];
    };
    if (event.error !== undefined) {
      if (!event.error.message.endsWith('.')) problems.push(`a stream ends with ${event.error.message}`);
      count(`cut: ${event.error.code}`);
      return undefined;
    }
    text += event.choices[0].text;
    const { finish_reason } = event.choices[0];
    if (finish_reason !== null) isWhole = checkFinish(finish_reason);
  }
  return isWhole ? text : undefined;
};

/** Clients know no other reasons. `abort`: half an answer. */
function checkFinish(reason: string): boolean {
  if (reason === 'length' || reason === 'stop') return true;
  problems.push(`an answer ends with the reason ${reason}`);
  return false;
}

/** A response in the background that is read until it ends. A crash of its process loses it. */
const inBackground: Ask = async ({ model, prompt }) => {
  const body = { model, input: prompt, max_output_tokens: 24, temperature: 0, background: true };
  const begun = await server.post('/v1/responses', body);
  if (begun.status !== 200) return refusal(begun);
  const { id } = (await begun.json()) as { readonly id: string };
  for (;;) {
    const answer = await fetch(`${server.origin}/v1/responses/${id}`);
    if (answer.status === 404) {
      await answer.arrayBuffer();
      count('lost: response');
      return undefined;
    }
    if (answer.status !== 200) await refusal(answer);
    else {
      const found = (await answer.json()) as {
        readonly status: string;
        readonly output: readonly { readonly content: readonly { readonly text: string }[] }[];
      };
      if (found.status === 'failed') {
        count('failed: response');
        return undefined;
      }
      if (found.status === 'completed' || found.status === 'incomplete')
        return found.output.flatMap(({ content }) => content.map(({ text }) => text)).join('');
    }
    await sleep(100);
  }
};

const kinds = { plain, streamed, inBackground };

async function askOnce(kind: keyof typeof kinds, asked: Asked): Promise<void> {
  const limit = new Promise<never>((_, reject) => {
    setTimeout(() => reject(new Error(`no answer in ${answerMaxMs} ms`)), answerMaxMs).unref();
  });
  try {
    const text = await Promise.race([kinds[kind](asked), limit]);
    if (text === undefined) return;
    count(`answered: ${kind}`);
    const key = `${kind === 'inBackground' ? 'response' : 'completion'} ${asked.prompt}`;
    const expected = texts.get(key);
    if (expected === undefined) texts.set(key, text);
    else if (text !== expected)
      problems.push(`${kind} of ${asked.model} to ${asked.prompt}: ${text} is not ${expected}`);
  } catch (error) {
    const cause = (error as { readonly cause?: { readonly code?: string } }).cause?.code ?? (error as Error).message;
    if (isEnding && /ECONN|SOCKET|fetch failed|terminated/.test(cause)) count('the server ended');
    else problems.push(`${kind} of ${asked.model}: ${cause}`);
  }
}

async function client(): Promise<void> {
  while (!isOver) {
    if (isEnding) await sleep(50);
    else
      await askOnce(pick(Object.keys(kinds) as (keyof typeof kinds)[]), { model: pick(names), prompt: pick(prompts) });
  }
}

interface Health {
  readonly status: string;
  readonly troubles?: readonly { readonly model: string }[];
}
const health = async (): Promise<Health> => (await fetch(`${server.origin}/health`)).json() as Promise<Health>;

/** The process of a model that is loaded now, or loads. */
function processes(): { readonly id: number; readonly model: string }[] {
  return childrenOf(server.child.pid!).flatMap((id) => {
    const [, model] = / model-worker -- (\S+)/.exec(commandOf(id)) ?? [];
    return model === undefined ? [] : [{ id, model }];
  });
}

/** Within five seconds, health names the model, or the process is not its process any more. */
async function checkHealth(
  fault: string,
  { id, model }: { readonly id: number; readonly model: string },
): Promise<void> {
  const until = Date.now() + healthMaxMs;
  for (;;) {
    const { troubles = [] } = await health();
    if (troubles.some((trouble) => trouble.model === model) || processes().every((each) => each.id !== id)) return;
    if (Date.now() > until) return void problems.push(`health does not name ${model} after ${fault}`);
    await sleep(200);
  }
}

const faultKinds = {
  async kill() {
    const [victim] = processes();
    if (victim === undefined) return;
    process.kill(victim.id, 'SIGKILL');
    await checkHealth('SIGKILL', victim);
  },
  async stop() {
    const victim = processes().at(-1);
    if (victim === undefined) return;
    const { data } = (await (await fetch(`${server.origin}/v1/models`)).json()) as {
      readonly data: readonly { readonly id: string; readonly status: string }[];
    };
    // A process that loads has six times as long.
    if (data.find(({ id }) => id === victim.model)?.status !== 'loaded') return;
    process.kill(victim.id, 'SIGSTOP');
    await checkHealth('SIGSTOP', victim);
  },
  async memory() {
    const victim = pick(processes());
    if (victim === undefined) return;
    faults.order(victim.model, 'memory');
    while (existsSync(join(folder, `order-${victim.model}`)) && !isOver) await sleep(50);
    await checkHealth('a lack of memory', victim);
  },
  async unload() {
    await (await server.post('/models/unload', { model: pick(names) })).arrayBuffer();
  },
  async terminate() {
    const children = childrenOf(server.child.pid!);
    isEnding = true;
    await server.stop();
    if (server.child.exitCode !== 0 && server.child.exitCode !== 143)
      problems.push(`the server ended with ${server.child.exitCode}, ${server.child.signalCode}`);
    await allGone(children);
    await startServer();
    isEnding = false;
  },
};

it(
  'each request to three models under faults is answered or refused with a sentence, and health is true',
  async () => {
    await startServer();
    for (const prompt of prompts) {
      await askOnce('plain', { model: 'first', prompt });
      await askOnce('inBackground', { model: 'second', prompt });
    }
    expect([texts.size, problems]).toEqual([2 * prompts.length, []]);
    const end = Date.now() + minutes * 60_000;
    const running = Array.from({ length: clients }, client);
    while (Date.now() < end) {
      await sleep(prng.between(2000, 8000));
      const fault = pick(Object.keys(faultKinds) as (keyof typeof faultKinds)[]);
      count(`fault: ${fault}`);
      await faultKinds[fault]();
    }
    isOver = true;
    await Promise.all(running);
    // The pause of a model that failed often is 30 s.
    for (const model of names) await (await server.post('/models/load', { model })).arrayBuffer();
    for (const model of names) await askOnce('plain', { model, prompt: prompts[0]! });
    await expect.poll(async () => (await health()).status, { timeout: 60_000, interval: 200 }).toBe('ok');
    console.log(JSON.stringify(counts, undefined, 1));
    expect(problems).toEqual([]);
  },
  (minutes + 5) * 60_000,
);

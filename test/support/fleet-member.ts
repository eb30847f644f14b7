import { setTimeout as sleep } from 'node:timers/promises';
import type { serve } from './cli-process.ts';

export interface FleetQuestion {
  readonly prompt: string;
  readonly max_tokens: number;
  readonly temperature: number;
  readonly seed?: number;
}

export interface FleetAnswer {
  readonly tokenIds: readonly number[];
  /** Tokens that were loaded, by tier. */
  readonly loaded: Readonly<Record<string, number>>;
  /** Tokens of the prompt's full blocks that a request can load: it computes the last token at least. */
  readonly loadable: number;
  /** The tokens of answers that ended because the server was killed. */
  readonly interrupted: readonly (readonly number[])[];
}

interface Usage {
  readonly prompt_tokens: number;
  readonly prompt_tokens_details: { readonly loaded_tokens?: Readonly<Record<string, number>> };
}

type Process = Awaited<ReturnType<typeof serve>>;

const blockTokens = 16;
/** An answer with so many tokens is in its middle. */
const middleTokens = 4;
const wholeBlocks = (promptTokens: number): number => blockTokens * Math.floor((promptTokens - 1) / blockTokens);

/** A server of a fleet. Its process may be killed and started again while clients wait for answers, and they ask again. */
export class FleetMember {
  readonly #start: () => Promise<Process>;
  #process: Promise<Process>;
  #isStopped: boolean = false;
  #killsLeft = 0;
  #killCount = 0;
  /** Whole answers of the process. */
  #answerCount = 0;

  constructor(start: () => Promise<Process>) {
    this.#start = start;
    this.#process = start();
  }

  get killCount(): number {
    return this.#killCount;
  }

  /** SIGKILL, and a new process. */
  kill(): void {
    this.#killCount++;
    this.#answerCount = 0;
    this.#process = this.#process.then(async ({ child, exited }) => {
      child.kill('SIGKILL');
      await exited;
      if (this.#isStopped) throw new Error('the server has ended');
      return this.#start();
    });
    // Without a question, nothing waits for it.
    this.#process.catch(() => undefined);
  }

  /** After a test, also one that failed while a process starts: no further process starts. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#killsLeft = 0;
    await this.#process.then(
      ({ child }) => child.kill('SIGKILL'),
      () => undefined,
    );
  }

  /** From now on, each process that has given a whole answer is killed in the middle of another, so often at most. */
  killInMiddleOfAnswers(count: number): void {
    this.#killsLeft = count;
  }

  /** `onToken` is called with each piece of the answer. */
  async ask(question: FleetQuestion, onToken?: () => void): Promise<FleetAnswer> {
    const interrupted: number[][] = [];
    for (;;) {
      const asked = this.#process;
      const { origin } = await asked;
      const tokenIds: number[] = [];
      try {
        const { prompt_tokens, prompt_tokens_details } = await stream(origin, question, (ids) => {
          tokenIds.push(...ids);
          onToken?.();
          if (asked === this.#process && tokenIds.length >= middleTokens) this.#isInMiddle();
        });
        if (asked === this.#process) this.#answerCount++;
        const { loaded_tokens: loaded = {} } = prompt_tokens_details;
        return { tokenIds, loaded, loadable: wholeBlocks(prompt_tokens), interrupted };
      } catch (error) {
        if (asked === this.#process) throw error;
        interrupted.push(tokenIds);
      }
    }
  }

  /** The status. */
  async get(path: string): Promise<number> {
    return (await fetch((await this.#process).origin + path)).status;
  }

  async post(path: string, body: object): Promise<Readonly<Record<string, unknown>>> {
    const response = await (await this.#process).post(path, body);
    const text = await response.text();
    if (!response.ok) throw new Error(`${path}: ${response.status} ${text}`);
    return JSON.parse(text) as Record<string, unknown>;
  }

  /** Empties the pool and host memory, whose name in a list of connectors has a position. */
  async forget(host = 'host'): Promise<void> {
    await this.post('/reset_prefix_cache', {});
    await this.post(`/tiers/${host}/clear`, {});
  }

  /** Whether each of the tiers has all full blocks of the prompt. */
  async hasStored({ prompt }: FleetQuestion, tiers: readonly string[]): Promise<boolean> {
    const found = (await this.post('/cache/lookup', { prompt })) as {
      readonly prompt_tokens: number;
      readonly tokens: Readonly<Record<string, number>>;
    };
    return tiers.every((tier) => found.tokens[tier]! >= wholeBlocks(found.prompt_tokens));
  }

  async untilStored(question: FleetQuestion, tiers: readonly string[]): Promise<void> {
    while (!(await this.hasStored(question, tiers))) await sleep(20);
  }

  #isInMiddle(): void {
    if (this.#killsLeft === 0 || this.#answerCount === 0) return;
    this.#killsLeft--;
    this.kill();
  }
}

/** Rejects if the server refuses the request or the stream breaks. */
async function stream(origin: string, question: FleetQuestion, onTokens: (ids: number[]) => void): Promise<Usage> {
  const body = { ...question, ignore_eos: true, return_token_ids: true, stream: true };
  const response = await fetch(`${origin}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ ...body, stream_options: { include_usage: true } }),
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  let usage: Usage | undefined;
  let rest = '';
  for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) {
    const events = (rest + piece).split('\n\n');
    rest = events.pop()!;
    for (const event of events) {
      const data = event.slice('data: '.length);
      if (data === '[DONE]' && usage !== undefined) return usage;
      const chunk = JSON.parse(data) as { choices: { token_ids?: number[] }[]; usage?: Usage | null };
      usage = chunk.usage ?? usage;
      const ids = chunk.choices.flatMap(({ token_ids }) => token_ids ?? []);
      if (ids.length > 0) onTokens(ids);
    }
  }
  throw new Error(`the answer has no end: ${rest}`);
}

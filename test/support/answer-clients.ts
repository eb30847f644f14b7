/** The clients that people use, each asking for a long answer: what they make of an answer that ends early. */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import Anthropic from '@anthropic-ai/sdk';
import { Ollama } from 'ollama';
import OpenAI from 'openai';
import { hasJudges, judgesFolder } from './judges.ts';
import { isLongForm } from './long-form.ts';

export interface AnswerRequest {
  readonly origin: string;
  readonly model: string;
  readonly maxTokens: number;
}

/** The finish reason that a client reports, or the class of the error that it raises. */
export type Outcome = { readonly ended: string } | { readonly raised: string; readonly message: string };

/** A stream is read on when the promise of `onBegun` resolves. */
type Ask = (request: AnswerRequest, stream: boolean, onBegun: () => Promise<void>) => Promise<string>;

const prompt = 'Once upon a time';
const messages = [{ role: 'user' as const, content: prompt }];
const openai = ({ origin }: AnswerRequest) =>
  new OpenAI({ baseURL: `${origin}/v1`, apiKey: 'none', maxRetries: 0, timeout: 600_000 });

async function lastOf<Part>(
  parts: AsyncIterable<Part>,
  onBegun: () => Promise<void>,
  read: (part: Part) => string | null,
) {
  let last = 'no finish reason';
  for await (const part of parts) {
    await onBegun();
    last = read(part) ?? last;
  }
  return last;
}

const asks: Readonly<Record<string, Ask>> = {
  'chat completions': async (request, stream, onBegun) => {
    const { model, maxTokens: max_tokens } = request;
    const body = { model, messages, max_tokens, temperature: 0, ...{ ignore_eos: true } };
    const { completions } = openai(request).chat;
    if (!stream) return (await completions.create(body)).choices[0]!.finish_reason;
    const chunks = await completions.create({ ...body, stream: true });
    return lastOf(chunks, onBegun, ({ choices: [choice] }) => choice?.finish_reason ?? null);
  },
  completions: async (request, stream, onBegun) => {
    const { model, maxTokens: max_tokens } = request;
    const body = { model, prompt, max_tokens, temperature: 0, ...{ ignore_eos: true } };
    const { completions } = openai(request);
    if (!stream) return (await completions.create(body)).choices[0]!.finish_reason;
    const chunks = await completions.create({ ...body, stream: true });
    return lastOf(chunks, onBegun, ({ choices: [choice] }) => choice?.finish_reason ?? null);
  },
  responses: async (request, stream, onBegun) => {
    const { model, maxTokens: max_output_tokens } = request;
    const body = { model, input: prompt, max_output_tokens, temperature: 0, ...{ ignore_eos: true } };
    const { responses } = openai(request);
    if (!stream) return (await responses.create(body)).status ?? 'no status';
    const events = await responses.create({ ...body, stream: true });
    return lastOf(events, onBegun, (event) => ('response' in event ? (event.response.status ?? null) : null));
  },
  messages: async (request, stream, onBegun) => {
    const { origin, model, maxTokens: max_tokens } = request;
    const client = new Anthropic({ baseURL: origin, apiKey: 'none', maxRetries: 0, timeout: 600_000 });
    const body = { model, messages, max_tokens, temperature: 0, ...{ ignore_eos: true } };
    if (!stream) return (await client.messages.create(body)).stop_reason ?? 'no stop reason';
    const events = await client.messages.create({ ...body, stream: true });
    return lastOf(events, onBegun, (event) => (event.type === 'message_delta' ? event.delta.stop_reason : null));
  },
  ollama: async ({ origin, model, maxTokens: num_predict }, stream, onBegun) => {
    const client = new Ollama({ host: origin });
    // Ollama's API has no `ignore_eos`: the format makes the text long.
    const format = { type: 'array', minItems: num_predict, items: { type: 'boolean' } };
    const body = { model, messages, format, options: { num_predict, temperature: 0 } };
    if (!stream) return (await client.chat({ ...body, stream: false })).done_reason;
    const lines = await client.chat({ ...body, stream: true });
    return lastOf(lines, onBegun, ({ done, done_reason }) => (done ? done_reason : null));
  },
  infill: async ({ origin, model, maxTokens: n_predict }, stream, onBegun) => {
    const fields = {
      model,
      input_prefix: prompt,
      input_suffix: 'the end',
      n_predict,
      temperature: 0,
      ignore_eos: true,
    };
    const body = JSON.stringify({ ...fields, stream });
    const answer = await fetch(`${origin}/infill`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    });
    if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
    if (!stream) return ((await answer.json()) as { stop_type: string }).stop_type;
    return lastOf(answer.body!.pipeThrough(new TextDecoderStream()), onBegun, (text) => {
      if (text.includes('"error":')) throw new Error(text);
      return /"stop_type":"(\w+)"/.exec(text)?.[1] ?? null;
    });
  },
};

/** The requests of all clients, each with and without streaming. `begun`: all streams have text. */
export function askAll(request: AnswerRequest) {
  const begun: Promise<void>[] = [];
  const outcomes: Promise<[string, Outcome]>[] = [];
  const noStream = async (): Promise<void> => undefined;
  for (const [name, ask] of Object.entries(asks)) {
    const { promise, resolve } = settled();
    begun.push(promise);
    outcomes.push(
      outcomeOf(
        `${name}, streamed`,
        ask(request, true, async () => resolve()),
      ),
    );
    outcomes.push(outcomeOf(name, ask(request, false, noStream)));
  }
  const all: Promise<Record<string, Outcome>> = Promise.all(outcomes).then(Object.fromEntries);
  return { count: outcomes.length, begun: Promise.all(begun), outcomes: all };
}

/** Streams that are read to their first part, and further when all are cut. */
export function readSlowly(request: AnswerRequest, areCut: (count: number) => Promise<void>) {
  const all = Object.entries(asks);
  const resumed = areCut(all.length);
  return Promise.all(
    all.map(([name, ask]) =>
      outcomeOf(
        name,
        ask(request, true, () => resumed),
      ),
    ),
  );
}

function settled() {
  let resolve: () => void = () => undefined;
  const promise = new Promise<void>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

const outcomeOf = (name: string, answer: Promise<string>): Promise<[string, Outcome]> =>
  answer.then(
    (ended) => [name, { ended }],
    (error: Error) => [name, { raised: error.constructor.name, message: error.message }],
  );

interface PythonScript {
  readonly python: string;
  readonly script: string;
  /** Requests that it sends. */
  readonly count: number;
}

const openaiScript: PythonScript = {
  python: join(judgesFolder, 'bin', 'python'),
  script: 'tools/compat/early_ends.py',
  count: 6,
};
/** `.ci/run` installs them for the long form. */
const agentsScript: PythonScript = {
  python: 'tools/compat/build/agents/bin/python',
  script: 'tools/compat/early_ends_of_agents.py',
  count: 14,
};

/** OpenAI's client for Python; and what agents are made of, which reports no finish reasons. Those that are installed. */
export const pythonClients = {
  openai: hasJudges ? [openaiScript] : [],
  agents: isLongForm && existsSync(agentsScript.python) ? [agentsScript] : [],
} as const;

/** A script with clients for Python, with requests of each kind. */
export class PythonClients {
  readonly count: number;
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #lines: AsyncIterator<string>;

  constructor({ python, script, count }: PythonScript) {
    this.count = count;
    this.#child = spawn(python, [script]);
    this.#child.stderr.pipe(process.stderr);
    this.#lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  /** Resolves when the clients are imported. */
  async ready(): Promise<void> {
    await this.#lines.next();
  }

  async ask(request: AnswerRequest): Promise<Record<string, Outcome>> {
    this.#child.stdin.end(`${JSON.stringify(request)}\n`);
    const { value } = await this.#lines.next();
    return JSON.parse(value as string) as Record<string, Outcome>;
  }
}

import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { JsonObject } from '../../../src/base/json.ts';
import { makeFolders } from '../../../src/base/make-folders.ts';
import { type CompletionRequest, settleAll } from '../../../src/cli/proof/completion.ts';
import { serverSentData } from '../../../src/cli/proof/server-sent-data.ts';
import { PeerProcess, packageVersion } from './peer-process.ts';
import { type PeerOptions, peerScript } from './peers.ts';
import type { Answer, Answers, Setup, Subject, SubjectServer } from './subject.ts';

/** llama.cpp's server in PyPI's `xllamacpp`. Its KV outside is one file per prompt: a client saves and restores its only slot. */
export class LlamaServer implements Subject {
  readonly name = 'llama-server';
  /** It has no loads that report a failure. */
  readonly without = ['folders', 'late', 'lost'] as const;
  readonly version: string;
  readonly #options: PeerOptions;

  static async open(options: PeerOptions): Promise<LlamaServer> {
    return new LlamaServer(`xllamacpp ${await packageVersion(options.python, 'xllamacpp')}`, options);
  }

  private constructor(version: string, options: PeerOptions) {
    this.version = version;
    this.#options = options;
  }

  async start({ model, store, adapter, reuses }: Setup): Promise<SubjectServer> {
    const { python, threads, folder, contextLength, signal } = this.#options;
    const options = { model, threads, context: contextLength, slots: join(store ?? folder, '/') };
    if (store !== undefined) await makeFolders(store);
    const withAdapter = adapter === undefined ? options : { ...options, adapter: adapter.whole };
    const server = await PeerProcess.start(python, peerScript('llama_server.py'), withAdapter, signal);
    const { origin } = server;
    const post = (path: string, body: JsonObject | readonly JsonObject[]): Promise<Response> =>
      fetch(origin + path, { method: 'POST', body: JSON.stringify(body), signal });
    const completion = async (request: CompletionRequest, isCached: boolean, onToken?: () => void) =>
      answerOf(await post('/completion', bodyOf(request, isCached)), onToken);
    const restored = async (request: CompletionRequest, index: number, onToken?: () => void) => {
      const { ok } = await post('/slots/0?action=restore', { filename: slotFile(index) });
      const answer = await completion(request, true, onToken);
      return answer && { ...answer, isRefused: !ok };
    };
    return {
      fill: async (requests) => {
        for (const [i, request] of requests.entries()) {
          await completion(request, false);
          await post('/slots/0?action=save', { filename: slotFile(i) });
        }
      },
      answer: (requests, onToken) =>
        oneByOne(requests, (request, i) =>
          store === undefined ? completion(request, reuses === true, onToken) : restored(request, i, onToken),
        ),
      // The last token of a cached prompt is computed alone, with other bits than in a whole prompt.
      references: async (requests) => {
        const kept: (Answer | undefined)[] = [];
        const computed = await oneByOne(requests, async (request) => {
          const answer = await completion(request, false);
          kept.push(await completion(request, true));
          return answer;
        });
        return [computed, kept];
      },
      setScale: async (scale) => void (await post('/lora-adapters', [{ id: 0, scale: scale === 'whole' ? 1 : 0.25 }])),
      killComputing: async () => server.killComputing(),
      isServing: () => server.isServing(),
      stop: () => server.stop(),
    };
  }

  async unitsIn(store: string): Promise<readonly (readonly string[])[]> {
    return (await readdir(store)).sort().map((name) => [join(store, name)]);
  }
}

async function oneByOne(
  requests: readonly CompletionRequest[],
  answer: (request: CompletionRequest, index: number) => Promise<Answer | undefined>,
): Promise<Answers> {
  const outcomes = await settleAll(requests, true, answer);
  return outcomes.map((outcome) => (outcome.status === 'fulfilled' ? outcome.value : undefined));
}

const slotFile = (index: number): string => `${String(index).padStart(3, '0')}.bin`;

const bodyOf = ({ prompt, maxTokens }: CompletionRequest, isCached: boolean): JsonObject => ({
  prompt: [...prompt],
  n_predict: maxTokens,
  temperature: 0,
  ignore_eos: true,
  n_probs: 1,
  return_tokens: true,
  stream: true,
  id_slot: 0,
  cache_prompt: isCached,
});

interface Event {
  readonly tokens?: readonly number[];
  readonly completion_probabilities?: readonly { readonly logprob: number | null }[];
  readonly stop?: boolean;
  readonly timings?: { readonly prompt_n: number };
}

/** Undefined if the answer is an error, or ends early. */
export async function answerOf(response: Response, onToken?: () => void): Promise<Answer | undefined> {
  const tokens: number[] = [];
  const logprobs: number[] = [];
  for await (const data of serverSentData(response)) {
    const event = JSON.parse(data) as Event;
    tokens.push(...(event.tokens ?? []));
    // Null: not a number.
    logprobs.push(...(event.completion_probabilities ?? []).map(({ logprob }) => logprob ?? Number.NEGATIVE_INFINITY));
    onToken?.();
    if (event.stop === true && event.timings !== undefined)
      return { tokens, logprobs, computedTokens: event.timings.prompt_n };
  }
  return undefined;
}

import type { Prng } from '../src/base/prng.ts';
import type { OutputConstraint } from '../src/core/constraint.ts';
import { requestId, type TokenId } from '../src/core/ids.ts';
import { type EngineRequest, poolings } from '../src/core/request.ts';
import type { SamplingParams } from '../src/core/sampling.ts';
import { notedConstraint } from './noted-constraint.ts';

const plainParams: SamplingParams = {
  n: 1,
  temperature: 0,
  topK: 0,
  topP: 1,
  minP: 0,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  logitBias: new Map(),
  seed: 0n,
  maxTokens: 16,
  minTokens: 0,
  stop: [],
  stopTokenIds: [],
  ignoreEos: false,
  includeStopStrInOutput: false,
  skipSpecialTokens: true,
};

/** Its digest equals a salt, and is another cache. */
const withAdapter = { adapter: { name: 'adapter', digest: 'a' } };

/** A request with default parameters, for tests that set only a few. */
export function makeRequest(
  id: string,
  prompt: ArrayLike<number>,
  more: Partial<Omit<EngineRequest, 'params'>> & { readonly params?: Partial<SamplingParams> } = {},
): EngineRequest {
  const { params, ...rest } = more;
  return {
    id: requestId(id),
    promptTokens: new Int32Array(prompt),
    eosTokenIds: [],
    priority: 0,
    ...rest,
    params: { ...plainParams, ...params },
  };
}

export interface WorkloadOptions {
  readonly vocabSize: number;
  readonly promptTokensMax: number;
  readonly outputTokensMax: number;
  /** All prompts begin with a long part of one story, and no request has a salt. */
  readonly isCrowd: boolean;
  /** Chooses a tenant for each request; undefined: there are no tenants. */
  readonly tenants?: Prng | undefined;
  /** Chooses the requests that ask for results of their prompts; undefined: none does. */
  readonly promptResults?: Prng | undefined;
}

/** Random requests that share prefixes: each prompt starts with a part of one of a few stories; an earlier prompt may replace a story. */
export class Workload {
  readonly #prng: Prng;
  readonly #options: WorkloadOptions;
  readonly #stories: number[][];
  readonly #constraint: OutputConstraint;
  #count = 0;

  constructor(prng: Prng, options: WorkloadOptions) {
    this.#prng = prng;
    this.#options = options;
    this.#constraint = notedConstraint(options.vocabSize);
    this.#stories = Array.from({ length: options.isCrowd ? 1 : prng.between(1, 3) }, () =>
      this.#tokens(options.promptTokensMax),
    );
  }

  next(): EngineRequest {
    const prng = this.#prng;
    const { promptTokensMax, outputTokensMax, vocabSize, isCrowd } = this.#options;
    const story = prng.pick(this.#stories);
    const prefix = story.slice(0, prng.between(isCrowd ? Math.floor(story.length / 2) : 0, story.length));
    const own = this.#tokens(prng.between(0, Math.max(0, promptTokensMax - prefix.length)));
    const prompt = prng.chance(0.2) ? prefix : [...prefix, ...own].slice(0, promptTokensMax);
    if (prompt.length === 0) prompt.push(prng.between(0, vocabSize - 1));
    if (prng.chance(0.1)) this.#stories[prng.between(0, this.#stories.length - 1)] = prompt;
    const separated = isCrowd ? {} : prng.pick([{}, {}, {}, { cacheSalt: '' }, { cacheSalt: 'a' }, withAdapter]);
    const maxTokens = prng.between(1, outputTokensMax);
    const minTokens = prng.chance(0.3) ? prng.between(0, maxTokens) : 0;
    const ignoreEos = prng.chance(0.5);
    // An EOS token always ends the output of a grammar.
    const hasGrammar = minTokens === 0 && !ignoreEos;
    const request = makeRequest(`r${++this.#count}`, prompt, {
      eosTokenIds: [0, 1] as TokenId[],
      priority: prng.between(-1, 2),
      ...(hasGrammar ? { constraint: this.#constraint } : {}),
      ...separated,
      ...(this.#options.tenants === undefined
        ? {}
        : { tenant: this.#options.tenants.pick(['a', 'a', 'a', 'a', 'b', 'c']) }),
      ...(this.#count % 7 === 0 ? { kvTransferParams: { sequence: this.#count } } : {}),
      params: {
        maxTokens,
        minTokens,
        ignoreEos,
        stopTokenIds: prng.chance(0.2) ? [prng.between(0, vocabSize - 1) as TokenId] : [],
      },
    });
    return this.#options.promptResults?.chance(0.3) === true
      ? withPromptResults(request, this.#options.promptResults)
      : request;
  }

  #tokens(count: number): number[] {
    const tokens: number[] = [];
    while (tokens.length < count) tokens.push(this.#prng.between(0, this.#options.vocabSize - 1));
    return tokens;
  }
}

/** The request asks for the logprobs of its prompt, and sometimes for no output, or for an embedding. */
function withPromptResults({ constraint: _, ...request }: EngineRequest, prng: Prng): EngineRequest {
  const noOutput = { ...request.params, maxTokens: 0, minTokens: 0 };
  if (prng.chance(0.5)) return { ...request, pooling: prng.pick(poolings), params: noOutput };
  return { ...request, params: { ...(prng.chance(0.3) ? noOutput : request.params), promptLogprobs: 0 } };
}

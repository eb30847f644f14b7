/** Requests of all APIs to a server of letters (`letter-engine.ts`), whose answers `src/server/recorded-answers.test.ts` compares. */
import type { LetterEngineOptions } from './letter-engine.ts';

type Json = Readonly<Record<string, unknown>>;

export interface ServerRequest {
  readonly path: string;
  /** Absent: a GET. */
  readonly body?: Json;
  /** One of `engines`; default: `letters`. */
  readonly engine?: string;
  /** Unknown fields are errors. */
  readonly isStrict?: boolean;
}

const hermes = '{% if tools %}<tool_call>{% endif %}{{ tool_calls }}{{ content.split("</think>") }}';
const call = '<tool_call>{"name":"get_weather","arguments":{"city":"Rome","days":12345678901234567890}}</tool_call>';
const base = { maxModelLen: 1000, chatTemplate: hermes, aliases: ['a', 'family/*'], pooling: 'mean' } as const;
const fimTokens = { prefix: 1, suffix: 2, middle: 3 };
const loads = { externalTokens: 8, failedLoads: 1, recomputedTokens: 2, loadedTokens: { disk: 6 } };

export const engines: Readonly<Record<string, LetterEngineOptions>> = {
  letters: { ...base, fimTokens },
  says: { ...base, answer: 'Sunny.\nHot.', stats: { cachedTokens: 4 } },
  calls: { ...base, answer: `<think>\nHm.\n</think>\n\nI look.${call}${call}` },
  loads: {
    ...base,
    stats: { cachedTokens: 4, draftedTokens: 5, acceptedTokens: 3, ...loads },
    kvTransferParams: (index) => ({ remote: index }),
  },
  fails: { ...base, failAtStep: 2 },
  failsAtOnce: { ...base, failAtStep: 1 },
  throws: { ...base, throws: new Error('a bug with a secret') },
  short: { ...base, maxModelLen: 40, fimTokens },
  ranks: { ...base, isReranker: true },
};

const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const described = { name: 'get_weather', description: 'The weather.', parameters };
const tool = { type: 'function', function: described };
const user = { role: 'user', content: 'Rome?' };
const openAiCall = { id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Rome"}' } };
const part = (text: string) => ({ type: 'text', text });

/** Of an endpoint: a body that is answered, and fields that change its answer. */
interface Variants {
  readonly path: string;
  readonly body: Json;
  readonly variants: readonly Json[];
}

const sampling: readonly Json[] = [
  { temperature: 0.5, top_p: 0.9, top_k: 5, min_p: 0.1, seed: 7, presence_penalty: 0.5, frequency_penalty: -0.5 },
  { repetition_penalty: 1.1, logit_bias: { 5: 1 }, min_tokens: 1, stop_token_ids: [3], ignore_eos: true },
  { include_stop_str_in_output: true, skip_special_tokens: false, cache_salt: 'team', priority: 3, top_p: 0 },
  { kv_transfer_params: { do_remote_decode: true, n: 1 }, min_tokens: 100, user: 'u', metadata: {} },
  { model: 'family/x', stop: ['i', 'x'], grammar: 'root ::= "a"', keep_alive: 5, mirostat: 1 },
  { structured_outputs: { choice: ['yes', 'no'] } },
  { response_format: { type: 'json_object' } },
  { response_format: { type: 'json_schema', json_schema: { name: 'x', schema: parameters, strict: false } } },
  { json_schema: parameters },
  { model: 'unknown' },
  { odd_field: 1 },
];

const answers: readonly Variants[] = [
  {
    path: '/v1/completions',
    body: { prompt: 'abc', max_tokens: 5 },
    variants: [
      ...sampling,
      { prompt: ['ab', 'abc'], n: 2 },
      { prompt: [[1], [1, 2]], n: 2, best_of: 3 },
      { n: 1, best_of: 3, logprobs: 1 },
      { echo: true, logprobs: 2 },
      { echo: true, max_tokens: 0 },
      { prompt_logprobs: 1, return_token_ids: true },
      { logprobs: 0 },
      { suffix: 'xyz' },
      { max_tokens: 5000 },
      { max_completion_tokens: 2 },
      { add_special_tokens: false },
    ],
  },
  {
    path: '/v1/chat/completions',
    body: { messages: [user], max_tokens: 200 },
    variants: [
      ...sampling,
      { tools: [tool] },
      { tools: [tool], tool_choice: 'none' },
      { tools: [tool], tool_choice: 'required', parallel_tool_calls: false },
      { tools: [tool], tool_choice: { type: 'function', function: { name: 'get_weather' } } },
      { n: 2, logprobs: true, top_logprobs: 1, return_token_ids: true },
      { prompt_logprobs: 1 },
      { messages: [user, { role: 'assistant', content: 'Sun' }], continue_final_message: true },
      { add_generation_prompt: false, reasoning_effort: 'low', chat_template_kwargs: { x: 1 } },
      { reasoning_effort: 'none', verbosity: 'low' },
      {
        messages: [
          { role: 'developer', content: [part('Be'), part('brief.')] },
          { ...user, name: 'Ann' },
          { role: 'assistant', content: null, tool_calls: [openAiCall], reasoning_content: 'Hm.' },
          { role: 'tool', tool_call_id: 'call_1', content: 'Sunny.' },
        ],
        tools: [tool],
      },
    ],
  },
  {
    path: '/v1/messages',
    body: { messages: [user], max_tokens: 200 },
    variants: [
      ...sampling,
      { stop_sequences: ['i'], system: 'x-anthropic-billing-header: 1\nBe brief.' },
      { system: [part('Be'), part('brief.')], thinking: { type: 'enabled', budget_tokens: 1024 } },
      { thinking: { type: 'disabled' }, chat_template_kwargs: { x: 1 }, mcp_servers: [{}], cache_control: {} },
      { tools: [{ name: 'get_weather', description: 'The weather.', input_schema: parameters, strict: true }] },
      { tools: [{ name: 'a', input_schema: parameters }], tool_choice: { type: 'any' } },
      { tools: [{ name: 'a', input_schema: parameters }], tool_choice: { type: 'tool', name: 'a' } },
      { tools: [{ name: 'a', input_schema: {} }], tool_choice: { type: 'none', disable_parallel_tool_use: true } },
      { tools: [{ type: 'web_search_20250305', name: 'web_search' }] },
      { output_config: { effort: 'high', format: { type: 'json_schema', schema: parameters } } },
      { output_format: { type: 'json_schema', schema: parameters } },
      { messages: [user, { role: 'assistant', content: 'Sun' }] },
      { messages: [user, { role: 'assistant', content: [part('Sun'), { type: 'thinking', thinking: 'Hm.' }] }] },
      {
        messages: [
          { role: 'user', content: [part('Rome?'), part('Or Oslo?')] },
          {
            role: 'assistant',
            content: [
              { type: 'thinking', thinking: 'Hm.', signature: 'x' },
              { type: 'tool_use', id: 'c1', name: 'a', input: { city: 'Rome' } },
            ],
          },
          { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c1', content: [part('Sunny.')] }, part('?')] },
          { role: 'user', content: [] },
          { role: 'system', content: 'Now.' },
        ],
      },
      { messages: [{ role: 'user', content: [{ type: 'document', source: { type: 'text', data: 'A text.' } }] }] },
    ],
  },
  {
    path: '/v1/messages/count_tokens',
    body: { messages: [user] },
    variants: [{ system: 'Be brief.' }, { model: 'x' }],
  },
  {
    path: '/api/chat',
    body: { model: 'letters:latest', messages: [user], options: { num_predict: 200 } },
    variants: [
      { messages: [] },
      { messages: [], keep_alive: 0 },
      { tools: [tool] },
      { think: true, keep_alive: '5m' },
      { think: 'high' },
      { format: 'json' },
      { format: parameters },
      { logprobs: true, top_logprobs: 1 },
      {
        options: {
          temperature: 0.5,
          top_k: 3,
          seed: -1,
          repeat_penalty: 1.1,
          stop: ['i'],
          num_ctx: 5,
          num_predict: -1,
        },
      },
      { messages: [user, { role: 'assistant', content: 'Sun' }] },
      {
        messages: [
          user,
          { role: 'Assistant', tool_calls: [{ function: { name: 'a', arguments: { days: 1 } } }], thinking: 'Hm.' },
          { role: 'tool', tool_name: 'a', content: 'Sunny.' },
        ],
      },
      { model: 'unknown' },
      { odd_field: 1 },
    ],
  },
  {
    path: '/api/generate',
    body: { model: 'letters', prompt: 'abc', options: { num_predict: 9 } },
    variants: [
      { prompt: '' },
      { raw: true, logprobs: true },
      { raw: true, system: 'x' },
      { suffix: 'xyz', logprobs: true, top_logprobs: 2 },
      { system: 'Be brief.', template: 'x', context: [1] },
      { images: ['x'] },
      { format: 'json', raw: true, think: false },
    ],
  },
  {
    path: '/infill',
    body: { input_prefix: 'ab', prompt: 'c', input_suffix: 'yz', n_predict: 5 },
    variants: [
      ...sampling,
      { n_predict: 0 },
      { n_predict: -1 },
      { n_predict: undefined, max_tokens: 3 },
      { input_extra: [{ filename: 'a.h', text: 'int a;', time: 1 }, { text: 'b' }], response_fields: ['x'] },
      { repeat_penalty: 1.2, n: 1 },
      { n: 2 },
    ],
  },
  {
    path: '/v1/responses',
    body: { input: 'Rome?', max_output_tokens: 200 },
    variants: [
      ...sampling.filter((fields) => !('response_format' in fields) && !('json_schema' in fields)),
      { instructions: 'Be brief.', metadata: { a: 'b' }, store: false, truncation: 'auto' },
      { reasoning: { effort: 'low', summary: 'auto' }, text: { verbosity: 'low' } },
      { text: { format: { type: 'json_schema', name: 'x', schema: parameters } } },
      { text: { format: { type: 'json_object' } } },
      { top_logprobs: 1, include: ['message.output_text.logprobs', 'reasoning.encrypted_content'] },
      { tools: [{ type: 'function', ...described }], tool_choice: 'required', parallel_tool_calls: false },
      { tools: [{ type: 'function', ...described }, { type: 'web_search' }] },
      { tools: [{ type: 'function', ...described }], tool_choice: { type: 'function', name: 'get_weather' } },
      { tools: [{ type: 'custom', name: 'get_weather', format: { type: 'text' } }] },
      { tools: [{ type: 'namespace', name: 'n', tools: [{ type: 'function', ...described }] }], tool_choice: 'none' },
      {
        input: [
          { role: 'developer', content: 'Be brief.' },
          {
            role: 'user',
            content: [
              { type: 'input_text', text: 'Rome?' },
              { type: 'input_text', text: 'Oslo?' },
            ],
          },
          { type: 'reasoning', summary: [{ type: 'summary_text', text: 'Hm.' }] },
          { type: 'function_call', call_id: 'c1', name: 'get_weather', arguments: '{"city":"Rome"}' },
          { type: 'function_call_output', call_id: 'c1', output: 'Sunny.' },
          { type: 'web_search_call' },
        ],
      },
      { previous_response_id: 'resp_none' },
      { input: [{ type: 'item_reference', id: 'none' }] },
      {
        input: Array.from({ length: 60 }, (_, i) => ({ role: 'user', content: `Message ${i} of many.` })),
        truncation: 'auto',
      },
    ],
  },
  { path: '/v1/responses/input_tokens', body: { input: 'Rome?' }, variants: [{ instructions: 'Be brief.' }] },
  { path: '/v1/chat/completions/input_tokens', body: { messages: [user] }, variants: [{ model: 'x' }] },
  { path: '/apply-template', body: { messages: [user] }, variants: [{ tools: [tool] }] },
  {
    path: '/v1/embeddings',
    body: { input: 'Once' },
    variants: [{ input: ['a', 'bc'], dimensions: 2 }, { input: [1, 2], encoding_format: 'base64' }, { input: '' }],
  },
  { path: '/api/embed', body: { model: 'letters', input: ['a', 'b'] }, variants: [{ input: [] }, { truncate: false }] },
  { path: '/api/embeddings', body: { model: 'letters', prompt: 'a' }, variants: [{ prompt: '' }] },
  { path: '/v1/score', body: { text_1: 'a', text_2: ['ab', 'abc'] }, variants: [{ queries: 'a', documents: ['b'] }] },
  { path: '/v1/rerank', body: { query: 'a', documents: ['ab', 'abc'] }, variants: [{ top_n: 1 }, { texts: ['b'] }] },
  {
    path: '/tokenize',
    body: { prompt: 'abc' },
    variants: [{ content: 'abc', with_pieces: true }, { messages: [user] }, { return_token_strs: true }],
  },
  { path: '/detokenize', body: { tokens: [97, 98] }, variants: [{ tokens: [] }, { tokens: [999] }] },
  { path: '/api/show', body: { model: 'letters' }, variants: [{ model: 'x' }] },
  { path: '/api/pull', body: { model: 'letters' }, variants: [{ model: 'x' }] },
  { path: '/v1/load_lora_adapter', body: { lora_name: 'a', lora_path: 'b' }, variants: [{}] },
  { path: '/cache/lose', body: { count: 1 }, variants: [{}] },
  { path: '/cache/pin', body: { prompt: 'a' }, variants: [{ ttl_seconds: 1 }] },
  { path: '/nothing', body: {}, variants: [{}] },
];

const isStreamed = (path: string): boolean =>
  /^\/(v1\/(completions|chat\/completions|messages|responses)|infill|api\/(chat|generate))$/.test(path);

/** Requests that are answered, and those of engines that fail. */
export function* goodRequests(): Generator<ServerRequest, void, void> {
  for (const { path, body, variants } of answers) {
    const forms: readonly Json[] = isStreamed(path) ? [{ stream: false }, { stream: true }] : [{}];
    const all = [{}, ...variants];
    for (const form of forms) {
      for (const fields of all) yield { path, body: { ...body, ...fields, ...form } };
      for (const fields of all.slice(0, 2)) yield { path, body: { ...body, ...fields, ...form }, isStrict: true };
      for (const engine of Object.keys(engines)) yield { path, body: { ...body, ...form }, engine };
      if (isStreamed(path))
        for (const fields of variants) yield { path, body: { ...body, ...fields, ...form }, engine: 'calls' };
    }
  }
  for (const path of ['/v1/completions', '/v1/chat/completions'])
    for (const engine of ['letters', 'loads', 'fails', 'throws'])
      for (const stream_options of [{ include_usage: true }, { include_usage: true, continuous_usage_stats: true }]) {
        const body = {
          prompt: path === '/v1/completions' ? 'abc' : undefined,
          max_tokens: 3,
          stream: true,
          stream_options,
        };
        yield { path, body: { ...body, messages: path === '/v1/completions' ? undefined : [user] }, engine };
      }
  const gets = [
    '/openapi.json',
    '/v1/models',
    '/v1/models/letters',
    '/v1/models/x',
    '/health',
    '/ping',
    '/health/live',
  ];
  const others = [
    '/version',
    '/props',
    '/tiers',
    '/api/tags',
    '/api/ps',
    '/api/version',
    '/',
    '/v1/responses/x',
    '/api/x',
  ];
  for (const path of [...gets, ...others]) yield { path };
}

const odd: readonly unknown[] = [
  ...[null, true, false, -1, 1, 2.5, '', 'a', '\ud800', [], [1], ['a'], {}, { a: 1 }, [{}], { type: 'x' }],
  ...[[{ type: 'x', role: 'user', content: [{ type: 'y' }] }], 'x'.repeat(1100)],
];

const messageFields: readonly Json[] = [
  { messages: [{ role: 'user', content: [{ type: 'image_url' }] }] },
  { messages: [{ role: 'user', content: [{ type: 'text' }] }] },
  { messages: [{ role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 'b', input: 1 }] }] },
  { messages: [{ role: 'assistant', content: [{ type: 'tool_use', id: 1, name: 'b' }] }] },
  { messages: [{ role: 'user', content: [{ type: 'tool_result' }] }] },
  { messages: [{ role: 'assistant', tool_calls: [{ id: 'a', function: { name: 'b', arguments: 1 } }] }] },
  { messages: [{ role: 'assistant', tool_calls: [{ function: { name: 1, arguments: {} } }] }] },
  { messages: [{ role: 'tool', content: 'x', images: ['y'] }] },
  { messages: Array.from({ length: 1001 }, () => user) },
  { messages: [{ role: 'user', content: Array.from({ length: 1001 }, () => part('')) }] },
  ...[{ name: 'a b' }, { name: 'a', parameters: 1 }, { name: 'a', strict: 1 }].map((fields) => ({
    tools: [{ type: 'function', function: fields, ...fields, input_schema: { type: 'object' } }],
  })),
  { tools: [tool, tool] },
  {
    tools: [
      { ...described, type: 'function' },
      { ...described, type: 'function' },
    ],
  },
  {
    tools: [
      { name: 'a', input_schema: {} },
      { name: 'a', input_schema: {} },
    ],
  },
  { tools: [{ name: 'a', input_schema: {} }], tool_choice: { type: 'tool', name: 'b' } },
  { tool_choice: 'required' },
  { tool_choice: { type: 'any' } },
  { tools: [tool], tool_choice: { function: { name: 'b' } } },
  { thinking: { type: 'enabled' }, chat_template_kwargs: [] },
  { output_config: { format: { type: 'json_schema', schema: 1 } } },
  { output_config: { format: { type: 'x' } } },
  { output_config: { effort: 'x' } },
  { text: { format: { type: 'json_schema', schema: 1 } } },
  { text: { format: { type: 'json_schema' } } },
  { text: { format: { type: 'x' } } },
  { reasoning: { effort: 'x' } },
  { options: { temperature: 'x' } },
  { options: { num_predict: 1.5 } },
  { options: { stop: 1 } },
  { options: { repeat_penalty: 0 } },
  { options: { min_p: 2, cache_salt: 3 } },
  { response_format: { type: 'json_schema', json_schema: { name: 'x', schema: 1 } } },
  { response_format: { type: 'json_object' }, structured_outputs: { regex: 'a' } },
];

/** Every field of the endpoints that generate, with values that have the wrong type or are out of range. */
export function* oddRequests(): Generator<ServerRequest, void, void> {
  const names = new Set(
    answers.flatMap(({ body, variants }) => [body, ...variants].flatMap((each) => Object.keys(each))),
  );
  for (const more of ['stream', 'stream_options', 'max_tool_calls', 'background', 'truncate_prompt_tokens'])
    names.add(more);
  for (const more of ['guided_json', 'audio', 'functions', 'prompt_embeds', 'conversation', 'user', 'echo'])
    names.add(more);
  for (const more of ['prompt_logprobs', 'logprobs', 'top_logprobs', 'best_of', 'n', 'chat_template']) names.add(more);
  for (const { path, body } of answers) {
    if (!isStreamed(path) && path !== '/v1/messages/count_tokens') continue;
    yield { path, body: {} };
    for (const name of names) {
      for (const value of odd) yield { path, body: { ...body, [name]: value } };
      yield { path, body: { ...body, [name]: 1 }, isStrict: true };
      const { [name]: _, ...rest } = body;
      if (name in body) yield { path, body: rest };
    }
    for (const fields of messageFields) yield { path, body: { ...body, ...fields } };
  }
}

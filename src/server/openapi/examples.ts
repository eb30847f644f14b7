/** Bodies of requests, with all objects whose fields `/openapi.json` describes. `...Others` are bodies with fields that exclude those of the example. */
const model = 'model';
const parameters = { type: 'object', properties: { city: { type: 'string' } } };
const tool = { name: 'get_weather', description: 'The weather of a city.', parameters, strict: false };
const call = { id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Rome"}' } };

export const completionExample = {
  prompt: 'Once',
  max_tokens: 8,
  stream: true,
  stream_options: { include_usage: true },
};

export const chatExample = {
  messages: [
    { role: 'user', content: [{ type: 'text', text: 'Is it sunny in Rome?', annotations: [] }] },
    { role: 'assistant', content: null, tool_calls: [call] },
    { role: 'tool', tool_call_id: 'call_1', content: 'Sunny.', name: 'get_weather' },
  ],
  tools: [{ type: 'function', function: tool }],
  response_format: { type: 'json_schema', json_schema: { name: 'weather', schema: parameters } },
  max_tokens: 8,
  stream: true,
  stream_options: { include_usage: true },
};

export const responseExample = {
  input: [
    { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Is it sunny in Rome?' }] },
    { type: 'function_call', call_id: 'call_1', name: 'get_weather', arguments: '{"city":"Rome"}' },
    { type: 'function_call_output', call_id: 'call_1', output: 'Sunny.' },
  ],
  tools: [{ type: 'function', ...tool }],
  reasoning: { effort: 'low' },
  text: { format: { type: 'text' } },
  max_output_tokens: 8,
};

export const messageExample = {
  max_tokens: 8,
  system: [{ type: 'text', text: 'Be brief.' }],
  messages: [
    { role: 'user', content: [{ type: 'text', text: 'Is it sunny in Rome?' }] },
    { role: 'assistant', content: [{ type: 'tool_use', id: 'call_1', name: 'get_weather', input: { city: 'Rome' } }] },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'call_1', content: 'Sunny.' }] },
  ],
  tools: [{ name: 'get_weather', description: 'The weather of a city.', input_schema: parameters }],
  tool_choice: { type: 'auto', disable_parallel_tool_use: true },
  thinking: { type: 'disabled' },
};

export const infillExample = {
  input_prefix: 'int main() {\n',
  prompt: '  int n = ',
  input_suffix: ';\n}\n',
  input_extra: [{ filename: 'a.h', text: 'int a();' }],
  n_predict: 8,
};

export const ollamaChatExample = {
  model,
  messages: [
    { role: 'user', content: 'Is it sunny in Rome?' },
    {
      role: 'assistant',
      content: '',
      tool_calls: [{ function: { name: 'get_weather', arguments: { city: 'Rome' } } }],
    },
    { role: 'tool', tool_name: 'get_weather', content: 'Sunny.' },
  ],
  options: { num_predict: 8 },
};
export const ollamaGenerateExample = { model, prompt: 'Once', options: { num_predict: 8 } };
export const ollamaEmbedExample = { model, input: 'Once' };
export const ollamaEmbeddingsExample = { model, prompt: 'Once' };
export const ollamaPullExample = { model };
export const ollamaShowExample = { model };
export const tokenizeExample = { prompt: 'Once' };
export const detokenizeExample = { tokens: [1, 2] };
export const embeddingExample = { input: 'Once' };
export const scoreExample = { text_1: 'What do foxes eat?', text_2: ['Foxes eat mice.', 'The sky is blue.'] };
export const rerankExample = {
  query: 'What do foxes eat?',
  documents: ['Foxes eat mice.', 'The sky is blue.'],
  top_n: 1,
};
export const loadAdapterExample = { lora_name: 'sql', lora_path: '/var/adapters/sql.gguf' };
export const unloadAdapterExample = { lora_name: 'sql' };
export const lossExample = { count: 1 };
export const prefixExample = { messages: [{ role: 'user', content: 'Is it sunny in Rome?' }], cache_salt: 'team-a' };
export const pinExample = { prompt: 'Once', ttl_seconds: 3600, places: ['pool', 'disk'] };
export const unpinExample = { prompt: 'Once' };
export const prefetchExample = { prompt: 'Once', to: 'pool' };
export const removeExample = { prompt: 'Once', places: ['pool', 'disk'] };
export const clearExample = { cache_salt: 'team-a', older_than_seconds: 86_400 };
export const attachExample = { tier: 'disk:/var/cache/kvasir:100GiB' };

const said = [{ role: 'user', content: 'Is it sunny in Rome?' }];
const functionTool = { type: 'function', function: tool };

export const completionOthers = [{ prompt: [1, 2], response_format: { type: 'json_object' } }];
export const chatOthers = [
  { messages: said, structured_outputs: { choice: ['yes', 'no'] } },
  { messages: said, response_format: { type: 'json_object', schema: parameters } },
  {
    messages: said,
    tools: [functionTool],
    tool_choice: { type: 'function', function: { name: 'get_weather' } },
    chat_template_kwargs: {},
  },
];
export const responseOthers = [
  { input: 'Once', text: { format: { type: 'json_schema', name: 'weather', schema: parameters } } },
  { input: 'Once', conversation: null },
];
export const messageOthers = [{ max_tokens: 8, system: 'Be brief.', messages: said }];
export const ollamaGenerateOthers = [{ model, prompt: 'Once', format: 'json', system: 'Be brief.' }];
export const ollamaShowOthers = [{ name: model }];
export const tokenizeOthers = [{ content: 'Once' }, { messages: said }];
export const scoreOthers = [
  { queries: 'What do foxes eat?', documents: ['Foxes eat mice.'] },
  { queries: 'What do foxes eat?', items: ['Foxes eat mice.'] },
  { data_1: 'What do foxes eat?', data_2: ['Foxes eat mice.'] },
];
export const rerankOthers = [{ query: 'What do foxes eat?', texts: ['Foxes eat mice.'] }];
export const prefixOthers = [{ prompt: 'Once' }, { tokens: [1, 2] }, { messages: said }];

import { describe, expect, it } from 'vitest';
import { closeServers, serveLetters } from '../responses/served-letters.suite.ts';
import { describeModel, showModel } from './describe-model.ts';

/**
 * What Ollama 0.17.4 answers: its server was built from the module of Go without the part that computes, and has read the same files.
 */
closeServers();

const demo = {
  details: {
    format: 'gguf',
    family: 'llama',
    families: ['llama'],
    parameter_size: '4.07M',
    quantization_level: 'Q8_0',
  },
  model_info: {
    'general.architecture': 'llama',
    'general.author': 'The Kvasir authors',
    'general.description': 'A very small storyteller, trained on text from a story grammar.',
    'general.file_type': 7,
    'general.languages': null,
    'general.license': 'MIT',
    'general.parameter_count': 4066560,
    'general.quantization_version': 2,
    'general.tags': null,
    'llama.attention.head_count': 4,
    'llama.attention.head_count_kv': 2,
    'llama.attention.key_length': 64,
    'llama.attention.layer_norm_rms_epsilon': 1e-5,
    'llama.attention.value_length': 64,
    'llama.block_count': 6,
    'llama.context_length': 8192,
    'llama.embedding_length': 256,
    'llama.feed_forward_length': 512,
    'llama.rope.dimension_count': 64,
    'llama.rope.freq_base': 10000,
    'llama.vocab_size': 2048,
    'tokenizer.ggml.add_bos_token': false,
    'tokenizer.ggml.add_eos_token': false,
    'tokenizer.ggml.bos_token_id': 0,
    'tokenizer.ggml.eos_token_id': 0,
    'tokenizer.ggml.eot_token_id': 2,
    'tokenizer.ggml.merges': null,
    'tokenizer.ggml.model': 'gpt2',
    'tokenizer.ggml.padding_token_id': 0,
    'tokenizer.ggml.pre': 'gpt-2',
    'tokenizer.ggml.token_type': null,
    'tokenizer.ggml.tokens': null,
  },
};
const firstTensors = [
  { name: 'token_embd.weight', type: 'Q8_0', shape: [256, 2048] },
  { name: 'blk.0.attn_norm.weight', type: 'F32', shape: [256] },
];

it('describes the bundled model as Ollama does, and adds the name that it shows to people', async () => {
  const described = await describeModel({ name: 'demo', path: 'models/kvasir-demo.gguf' });
  const { model_info, tensors, ...shown } = showModel(described) as typeof demo & { readonly tensors: object[] };
  expect(shown).toMatchObject({ details: demo.details });
  // The file has got its description and its sampling after the recording.
  const since = {
    'general.basename': 'demo',
    'general.description': expect.stringContaining('storyteller'),
    'general.sampling.temp': 0.7,
    'general.sampling.min_p': 0.05,
  };
  expect(model_info).toEqual({ ...demo.model_info, ...since });
  expect([tensors.slice(0, 2), tensors.length]).toEqual([firstTensors, 56]);
});

const user = [{ role: 'user', content: 'x' }];
const stopped = { response: '', done: true, done_reason: 'unload' };
const chatStopped = { message: { role: 'assistant', content: '' }, done: true, done_reason: 'unload' };

describe('answers and refuses as Ollama', () => {
  it.each([
    ['GET', '/api/none', undefined, 404],
    ['POST', '/api/version', '', 405],
    ['PUT', '/api/tags', '', 405],
    ['GET', '/api/chat', undefined, 405],
    ['POST', '/api/chat', '', 400],
    ['POST', '/api/chat', '{"model":', 400],
    ['POST', '/api/chat', '[]', 400],
    ['POST', '/api/generate', 'model=x', 400],
    ['POST', '/api/generate', { model: 'nope', prompt: 'x' }, 404],
    ['POST', '/api/generate', { keep_alive: 0 }, 200, stopped],
    ['POST', '/api/generate', { keep_alive: '0' }, 200, stopped],
    ['POST', '/api/generate', { keep_alive: '-0s', suffix: 'x' }, 200, stopped],
    ['POST', '/api/generate', { keep_alive: '5' }, 400],
    ['POST', '/api/generate', { keep_alive: true }, 400],
    ['POST', '/api/generate', { prompt: 'x', raw: true, system: 'y' }, 400],
    ['POST', '/api/generate', { prompt: 'x', suffix: 'y' }, 400],
    ['POST', '/api/chat', { model: 'nope', messages: [] }, 404],
    ['POST', '/api/chat', { keep_alive: 0 }, 200, chatStopped],
    ['POST', '/api/chat', { messages: [], keep_alive: '0s' }, 200, chatStopped],
    ['POST', '/api/chat', { logprobs: true, top_logprobs: 21 }, 400],
    ['POST', '/api/chat', { messages: user, think: 'huge' }, 400],
    ['POST', '/api/chat', { messages: [{ role: 'user', content: 5 }] }, 400],
    ['POST', '/api/embed', { model: 'nope', input: 'x' }, 404],
    ['POST', '/api/embeddings', { model: 'nope', prompt: 'x' }, 404],
    ['POST', '/api/show', { model: 'nope' }, 404],
    ['POST', '/api/show', { name: 'letters:latest' }, 200],
    ['POST', '/api/pull', { model: '' }, 400],
    ['HEAD', '/api/version', undefined, 200],
    ['HEAD', '/api/tags', undefined, 200],
    ['HEAD', '/', undefined, 200],
  ])('%s %s %j: %i', async (method, path, body, status, expected: object = {}) => {
    const { origin } = await serveLetters({ pooling: 'mean' });
    const sent = typeof body === 'object' ? JSON.stringify({ model: 'letters', ...body }) : body;
    const bytes = sent === undefined ? {} : { body: Buffer.from(sent) };
    const answer = await fetch(origin + path, { method, ...bytes });
    expect(answer.status).toBe(status);
    const text = await answer.text();
    if (status >= 400) expect(JSON.parse(text)).toEqual({ error: expect.stringMatching(/./) });
    else if (method === 'POST') expect(JSON.parse(text)).toMatchObject(expected);
  });
});

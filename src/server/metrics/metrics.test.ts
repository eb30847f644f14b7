import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { toyEngine } from '../../../test/support/toy-model.ts';
import { Server } from '../server.ts';
import { tokenCounts } from './completion-metrics.ts';

const ofEveryModel = ['model_name="toy"', 'engine="0"'];

/** Every sample of the text format, by name and labels: `name{a="b"}` -> value. */
function samplesOf(text: string): Map<string, number> {
  const samples = new Map<string, number>();
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue;
    const at = line.lastIndexOf(' ');
    const [, metric, labels = ''] = /^([^{]+)(?:\{(.*)\})?$/.exec(line.slice(0, at))!;
    const others = labels.split(',').filter((label) => label !== '' && !ofEveryModel.includes(label));
    const name = others.length === 0 ? metric! : `${metric}{${others.join(',')}}`;
    expect(samples.has(name), `${name} comes twice`).toBe(false);
    samples.set(name, Number(line.slice(at + 1)));
  }
  return samples;
}

describe('GET /metrics', () => {
  const { engine } = toyEngine();
  const server = new Server(engine, { version: '0.0.0', logLevel: 'silent', apiKey: 'secret' });
  let url: string;
  beforeAll(async () => {
    url = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
  });
  afterAll(async () => {
    await server.app.close();
    await engine.close();
  });
  const scrape = async () => {
    const response = await fetch(`${url}/metrics`);
    expect([response.status, response.headers.get('content-type')]).toEqual([
      200,
      'text/plain; version=0.0.4; charset=utf-8',
    ]);
    return samplesOf(await response.text());
  };
  const complete = async (fields: object) => {
    const response = await fetch(`${url}/v1/completions`, {
      method: 'POST',
      headers: { authorization: 'Bearer secret', 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'toy', ignore_eos: true, ...fields }),
    });
    await response.text();
    return response.status;
  };

  it('has every total and level at 0 before the first request, without an API key', async () => {
    const samples = await scrape();
    for (const name of ['vllm:prompt_tokens_total', 'vllm:num_requests_running', 'vllm:num_requests_waiting'])
      expect(samples.get(name), name).toBe(0);
    for (const reason of ['stop', 'length', 'abort', 'error'])
      expect(samples.get(`vllm:request_success_total{finished_reason="${reason}"}`)).toBe(0);
  });

  it('counts requests, tokens and their sources, and observes times and lengths once for each completion', async () => {
    const prompt = 'a prompt of some length';
    expect(await complete({ prompt, max_tokens: 5, seed: 1 })).toBe(200);
    expect(await complete({ prompt, max_tokens: 5, seed: 1, n: 2 })).toBe(200);
    expect(await complete({ prompt, max_tokens: 'x' })).toBe(400);
    const refused = 'http_requests_total{method="POST",handler="/v1/completions",status="4xx"}';
    // A request counts when its response is closed, which the client may see earlier.
    await expect.poll(async () => (await scrape()).get(refused)).toBe(1);
    const samples = await scrape();
    const stats = engine.stats();
    expect(stats).toMatchObject({ promptTokens: 72, cachedTokens: 46, generatedTokens: 15 });
    const expected = {
      'vllm:prompt_tokens_total': 72,
      'vllm:prompt_tokens_cached_total': 46,
      'vllm:generation_tokens_total': 15,
      'vllm:prompt_tokens_by_source_total{source="local_compute"}': 26,
      'vllm:prompt_tokens_by_source_total{source="local_cache_hit"}': 46,
      'vllm:prompt_tokens_by_source_total{source="external_kv_transfer"}': 0,
      'vllm:prefix_cache_queries_total': 72,
      'vllm:prefix_cache_hits_total': 46,
      'vllm:external_prefix_cache_queries_total': 0,
      'vllm:request_success_total{finished_reason="length"}': 3,
      'vllm:request_prompt_tokens_count': 3,
      'vllm:request_prompt_tokens_sum': 72,
      'vllm:request_generation_tokens_sum': 15,
      'vllm:request_prefill_kv_computed_tokens_sum': 26,
      'vllm:request_params_n_sum': 3,
      'vllm:request_params_max_tokens_sum': 15,
      'vllm:time_to_first_token_seconds_count': 3,
      'vllm:inter_token_latency_seconds_count': 12,
      'vllm:request_time_per_output_token_seconds_count': 3,
      'vllm:e2e_request_latency_seconds_count': 3,
      'vllm:request_queue_time_seconds_count': 3,
      'vllm:request_prefill_time_seconds_count': 3,
      'vllm:request_decode_time_seconds_count': 3,
      'vllm:request_inference_time_seconds_count': 3,
      'kvasir:recovery_seconds_count': 0,
      'kvasir:steps_total': stats.steps,
      'kvasir:computed_tokens_total': stats.computedTokens,
      'kvasir:step_seconds_count{part="execute"}': stats.steps,
      'vllm:kv_cache_usage_perc': 0,
      'kvasir:healthy': 1,
      'http_requests_total{method="POST",handler="/v1/completions",status="2xx"}': 2,
      'http_requests_total{method="POST",handler="/v1/completions",status="4xx"}': 1,
      'vllm:cache_config_info{block_size="4",num_gpu_blocks="399",block_bytes="64",groups="full"}': 1,
    };
    expect(Object.fromEntries(Object.keys(expected).map((name) => [name, samples.get(name)]))).toEqual(expected);
    const computed = (await scrape()).get('vllm:iteration_tokens_total_sum');
    expect(computed).toBe(stats.computedTokens);
  });

  it('has a recovery in its histogram, and the tokens that it computed again', async () => {
    const stream = engine.generate({
      prompt: 'another prompt, for the loss',
      params: { maxTokens: 30, ignoreEos: true },
    });
    await stream.next();
    await engine.cache!.loseBlocks({ count: 2, seed: 1 });
    for await (const _ of stream);
    const samples = await scrape();
    expect(samples.get('kvasir:recoveries_total')).toBe(1);
    expect(samples.get('kvasir:recovery_seconds_count')).toBe(1);
    expect(samples.get('kvasir:recomputed_tokens_total')).toBe(engine.stats().recomputedTokens);
    expect(samples.get('kvasir:recomputed_tokens_total')).toBeGreaterThan(0);
  });

  it('is joined by vLLM’s load, and by the health for SageMaker', async () => {
    expect(await (await fetch(`${url}/load`)).json()).toEqual({ server_load: 0 });
    expect((await fetch(`${url}/ping`)).status).toBe(200);
    expect((await fetch(`${url}/ping`, { method: 'POST' })).status).toBe(200);
  });
});

describe('the buckets of lengths', () => {
  it('are 1, 2, 5, 10, ... up to the longest request', () => {
    expect(tokenCounts(100)).toEqual([1, 2, 5, 10, 20, 50, 100]);
    expect(tokenCounts(128)).toEqual([1, 2, 5, 10, 20, 50, 100]);
  });
});

import { describe, expect, it } from 'vitest';
import { ScriptedConnector } from '../../sim/connected.ts';
import { toyEngine, untilIdle } from '../../test/support/toy-model.ts';
import type { JsonObject } from '../base/json.ts';
import type { ConnectorRequest } from '../connector/connector.ts';
import type { GenerateRequest, OutputDelta } from './contract.ts';

/** A connector that answers each request with its `kvTransferParams` and the number of its valid blocks. */
class Echo extends ScriptedConnector {
  override requestFinished(request: ConnectorRequest, valid?: () => readonly unknown[]) {
    super.requestFinished(request);
    const { kvTransferParams: heard } = request;
    if (heard === undefined) return {};
    return { kvTransferParams: { heard, blocks: valid?.().length ?? 0 } satisfies JsonObject };
  }
}

async function finishOf(request: GenerateRequest, use: (deltas: AsyncIterable<OutputDelta>) => void = () => {}) {
  const connector = new Echo();
  const toy = toyEngine({ connector });
  const stream = toy.engine.generate(request);
  use(stream);
  let finish: OutputDelta['finish'];
  for await (const delta of stream) finish = delta.finish;
  await untilIdle(toy.scheduler);
  await toy.engine.close();
  toy.scheduler.checkInvariants();
  expect(connector.finished).toHaveLength(1);
  return finish;
}

describe('the kvTransferParams of the connector’s answer', () => {
  const kvTransferParams = { do_remote_decode: true };
  const params = { maxTokens: 1, seed: 1n, ignoreEos: true };
  const prompt = 'eleven char';

  it('is in the finish of a completion that the scheduler ends', async () => {
    // 12 tokens with BOS: 3 blocks of 4 tokens.
    expect(await finishOf({ prompt, params, kvTransferParams })).toEqual({
      reason: 'length',
      kvTransferParams: { heard: kvTransferParams, blocks: 3 },
    });
  });

  it('is in the finish if a stop string ends the completion, which the scheduler does not know', async () => {
    const forced = { ...params, maxTokens: 50, stop: ['aa'], logitBias: new Map([[0x61, 100]]) as never };
    const finish = await finishOf({ prompt, params: forced, kvTransferParams });
    expect(finish).toMatchObject({
      reason: 'stop',
      stopReason: 'aa',
      kvTransferParams: { heard: kvTransferParams },
    });
  });

  it('is in the finish if the stop string is complete at the last token', async () => {
    const forced = { ...params, stop: ['a'], logitBias: new Map([[0x61, 100]]) as never };
    expect(await finishOf({ prompt, params: forced, kvTransferParams })).toEqual({
      reason: 'stop',
      stopReason: 'a',
      kvTransferParams: { heard: kvTransferParams, blocks: 3 },
    });
  });

  it('is in the finish if the client’s signal aborts the completion', async () => {
    const connector = new Echo();
    const { engine, scheduler } = toyEngine({ connector });
    const controller = new AbortController();
    const request = { prompt, params: { ...params, maxTokens: 50 }, kvTransferParams };
    let finish: OutputDelta['finish'];
    for await (const delta of engine.generate(request, { signal: controller.signal })) {
      finish = delta.finish;
      controller.abort();
    }
    expect(finish).toMatchObject({ reason: 'abort', kvTransferParams: { heard: kvTransferParams } });
    expect(connector.finished).toHaveLength(1);
    await untilIdle(scheduler);
    await engine.close();
  });

  it('is absent if the connector returns none', async () => {
    expect(await finishOf({ prompt, params })).toEqual({ reason: 'length' });
  });
});

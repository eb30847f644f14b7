import { serialize } from 'node:v8';
import { describe, expect, it } from 'vitest';
import { requestId, stepId, type TokenId, tokenCount } from '../core/ids.ts';
import { parseSamplingParams } from '../core/sampling-parse.ts';
import type { SequencePlan } from '../core/step.ts';
import { TokenBuffer } from '../core/tokens.ts';
import { StepDecoder, StepEncoder } from './step-codec.ts';

/** Bytes of a step that decodes one token after a context of `context` tokens. */
function decodeBytes(context: number): number {
  const tokens = new TokenBuffer(Array.from({ length: context }, (_, i) => i % 200));
  const params = parseSamplingParams({}, { vocabSize: 256, maxTokensDefault: 9, drawSeed: () => 1n });
  const sample = { params, promptLength: tokenCount(context), eosTokenIds: [] };
  const blocks = Int32Array.from({ length: Math.ceil((context + 9) / 16) }, (_, i) => i + 1);
  const blockTables = [{ ids: blocks, length: blocks.length }];
  const encoder = new StepEncoder();
  const send = (start: number): number => {
    const spans = [{ start: tokenCount(start), end: tokenCount(tokens.length) }];
    const sequence: SequencePlan = { requestId: requestId('a'), tokens, spans, blockTables, sample };
    const plan = { stepId: stepId(1), sequences: [sequence], tokenCount: tokenCount(1), released: [] };
    return serialize(encoder.encode(plan)).byteLength;
  };
  const first = send(0);
  expect(first).toBeGreaterThan(context * 4);
  tokens.push(7 as TokenId);
  return send(context);
}

describe('the message of a step', () => {
  it('of decoding does not grow with the context', () => {
    expect(decodeBytes(100_000)).toBe(decodeBytes(100));
    expect(decodeBytes(100)).toBeLessThan(256);
  });

  it('that arrives twice, out of order or after a lost message is an assertion', () => {
    const tokens = new TokenBuffer([1, 2, 3]);
    const encoder = new StepEncoder();
    const [first, second, third] = [1, 2, 3].map((step) => {
      tokens.push(4 as TokenId);
      const spans = [{ start: tokenCount(tokens.length - 1), end: tokenCount(tokens.length) }];
      const sequences: SequencePlan[] = [{ requestId: requestId('a'), tokens, spans, blockTables: [] }];
      const plan = { stepId: stepId(step), sequences, tokenCount: tokenCount(1), released: [] };
      return structuredClone(encoder.encode(plan));
    });
    const decoder = new StepDecoder();
    decoder.decode(first!);
    expect(() => decoder.decode(first!)).toThrow('step 1 arrives after step 1');
    expect(() => decoder.decode(third!)).toThrow('tokens 5 to 6 of the 5 of a');
    expect(() => decoder.decode(second!)).toThrow('step 2 arrives after step 3');
    expect(() => new StepDecoder().decode(second!)).toThrow('the request has a mirror');
  });
});

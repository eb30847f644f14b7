import { expect, it } from 'vitest';
import { eos, toyEngine } from '../../test/support/toy-model.ts';
import type { OutputDelta } from './contract.ts';

it('says where the names of control tokens are in the text, also behind text that a stop string may begin', async () => {
  const { engine } = toyEngine({});
  const bias = { logitBias: new Map([[eos, 100]]) as never };
  const params = {
    temperature: 0,
    ...bias,
    maxTokens: 2,
    ignoreEos: true,
    skipSpecialTokens: false,
    stop: ['s><x'],
  };
  const deltas: OutputDelta[] = [];
  for await (const delta of engine.generate({ prompt: 'x', params })) deltas.push(delta);
  let text = '';
  const names = deltas.flatMap((delta) => {
    const begin = text.length;
    text += delta.text;
    return (delta.controls ?? []).map(({ at, length }) => [begin + at, length]);
  });
  expect([text, names]).toEqual([
    '<eos><eos>',
    [
      [0, 5],
      [5, 5],
    ],
  ]);
  const plain: OutputDelta[] = [];
  for await (const delta of engine.generate({ prompt: 'x', params: { ...params, skipSpecialTokens: true } }))
    plain.push(delta);
  expect(plain.map(({ text: shown, controls }) => [shown, controls])).toEqual([
    ['', undefined],
    ['', undefined],
  ]);
  await engine.close();
});

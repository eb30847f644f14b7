import { expect, it } from 'vitest';
import type { GgufScalar } from './gguf-metadata.ts';
import { readDescription } from './model-description.ts';

const read = (value: GgufScalar | undefined) =>
  readDescription({ entries: new Map(value === undefined ? [] : [['general.description', value]]) });
const text = (value: string): GgufScalar => ({ type: 'string', value });

it('is one line without characters that a terminal obeys', () => {
  expect(read(text('A small storyteller.'))).toBe('A small storyteller.');
  expect(read(text(' \u001b[31mred\u001b[0m\r\n\tnext\u2028line \u202egnp\u0000 '))).toBe('[31mred [0m next line gnp');
});

it('is cut after 300 characters', () => {
  expect(read(text('🦊'.repeat(300)))).toBe('🦊'.repeat(300));
  expect(read(text('🦊'.repeat(301)))).toBe(`${'🦊'.repeat(299)}…`);
});

it('is absent if the file has none, or no text', () => {
  expect(read(undefined)).toBeUndefined();
  expect(read(text(' \n'))).toBeUndefined();
  expect(read({ type: 'u32', value: 7 })).toBeUndefined();
});

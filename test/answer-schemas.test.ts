/** The schemas of answers in `/openapi.json` against the types that they are written from. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { answerSchemas, schemaFile } from '../scripts/answer-schemas.ts';

it('the schemas are those of the types: node dist/scripts/answer-schemas.js writes them', () => {
  expect(JSON.parse(readFileSync(schemaFile, 'utf8'))).toEqual(answerSchemas());
});

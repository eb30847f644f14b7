import { existsSync } from 'node:fs';
import { expect, it } from 'vitest';
import { heavyFiles } from './heavy-files.ts';

it('all listed files exist', () => {
  expect(heavyFiles.filter((path) => !existsSync(path))).toEqual([]);
});

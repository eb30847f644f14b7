import { existsSync } from 'node:fs';
import { expect, it } from 'vitest';
import { heavyFiles } from './heavy-files-first.ts';

it('all listed files exist', () => {
  expect(heavyFiles.filter((path) => !existsSync(path))).toEqual([]);
});

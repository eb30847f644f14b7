/**
 * A setup file of Vitest for `.ci/test-bare`: in files that take long, only hooks run. Their tests without needs run in `npm test`, and
 * a hook is where a suite opens what it needs.
 */
import { relative } from 'node:path';
import { beforeEach, expect } from 'vitest';
import { heavyFiles } from './heavy-files.ts';

const file = relative(process.cwd(), expect.getState().testPath ?? '');
if (heavyFiles.includes(file)) {
  beforeEach((context) => {
    context.task.meta.skipReason = 'it takes long, and needs nothing';
    context.skip();
  });
}

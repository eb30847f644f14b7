import { EventEmitter } from 'node:events';
import { Readable } from 'node:stream';
import { afterAll, expect, test } from 'vitest';
import { temporaryFolder, writeTinyModel } from '../../../test/support/tiny-model.ts';
import type { CliContext } from '../context.ts';
import { runCli } from '../run-cli.ts';
import { demoCommand } from './command.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());

test('the demo refuses a model with recurrent states, whose minimum of computed tokens it does not know', async () => {
  const path = folder.file('states.gguf');
  await writeTinyModel(path, { architecture: 'lfm2', type: 'F16' });
  const errors: string[] = [];
  const context: CliContext = {
    version: '1.2.3',
    createEngine: () => Promise.reject(new Error('no engine is created')),
    stdout: { write: () => undefined },
    stderr: { write: (text: string) => errors.push(text) },
    stdin: Readable.from([]),
    signals: new EventEmitter(),
    exitNow: () => undefined,
  };
  expect(await runCli(['demo', '--model', path], context, [demoCommand])).not.toBe(0);
  expect(errors.join('')).toContain('some of its layers have a recurrent state');
});

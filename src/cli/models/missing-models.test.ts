import { EventEmitter } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { Readable } from 'node:stream';
import { afterAll, expect, it } from 'vitest';
import { runHere } from '../../../test/support/run-here.ts';
import { temporaryFolder, writeTinyModel } from '../../../test/support/tiny-model.ts';
import { until } from '../../../test/support/until.ts';
import { checkEngineOptions } from '../../compose-check.ts';
import { runCli } from '../run-cli.ts';
import { serveCommand } from '../serve.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());
const model = folder.file('a.gguf');
await writeTinyModel(model, { architecture: 'qwen3', type: 'Q8_0', context: 512 });
const empty = folder.file('empty');
mkdirSync(empty);
writeFileSync(folder.file('empty/readme.txt'), 'no model');
writeFileSync(folder.file('text.gguf'), 'no model');

/** What a server writes from its start until it serves. */
async function startOf(...args: string[]): Promise<string> {
  const signals = new EventEmitter();
  let log = '';
  const stderr = {
    write(text: string) {
      log += text;
    },
  };
  const running = runCli(
    ['serve', '--port', '0', ...args],
    {
      version: '1',
      checkEngineOptions,
      createEngine: () => Promise.reject(new Error('no request asks for a model')),
      stdout: stderr,
      stderr,
      stdin: Readable.from([]),
      signals,
      exitNow: () => undefined,
    },
    [serveCommand],
  );
  await until(() => log.includes('serving models='));
  signals.emit('SIGTERM');
  expect(await running).toBe(0);
  return log;
}

it.each([
  [['a.gguf', 'b.gguf'], /model file a.gguf: there is no such file/],
  [[model, 'b.gguf'], /model file b.gguf: there is no such file/],
  [[model, folder.file('text.gguf')], /text.gguf/],
  [[model, folder.file('empty')], /empty/],
  [[model, 'hf:x'], /hf:x is wrong/],
])('a server of several models does not start without one of them: %j', async (models, message) => {
  const { code, stderr } = await runHere(['serve', '--port', '0', ...models]);
  expect([code === 1 || code === 2, stderr]).toEqual([true, expect.stringMatching(message)]);
  expect(stderr).not.toContain('listening');
});

it('checks each model with the settings of its section', async () => {
  const config = folder.file('models.yaml');
  writeFileSync(
    config,
    `models:\n  one: { model: ${model} }\n  two: { model: ${model}, chat-template: missing.jinja }\n`,
  );
  expect((await runHere(['serve', '--port', '0', '--config', config])).stderr).toContain('missing.jinja');
});

it('a folder without models is told of, because models may be put there later', async () => {
  const log = await startOf('--model-dir', empty);
  expect(log).toContain('serving models=0');
  expect(log).toContain(`There is no model in ${empty}: no file below it has a name that ends with .gguf.`);
  expect(await startOf('--model-dir', empty, '--hub-models', 'any')).toContain(`There is no model in ${empty}`);
  expect(await startOf('--model-dir', folder.file('.'))).not.toContain('There is no model');
});

it('a section that no model has is told of', async () => {
  const config = folder.file('sections.yaml');
  writeFileSync(config, 'models:\n  a: { max-model-len: 64 }\n  other: { max-model-len: 64 }\n');
  const log = await startOf('--model-dir', folder.file('.'), '--config', config);
  expect(log).toContain('The section `models.other` is of no model');
  expect(log).not.toContain('`models.a`');
});

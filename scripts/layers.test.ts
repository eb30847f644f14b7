import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { temporaryFolder } from '../test/support/tiny-model.ts';
import { checkLayers } from './layers.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());
let serial = 0;

/** The rules that a repository with these files breaks. */
function rulesBrokenBy(files: Readonly<Record<string, string>>): string[] {
  const root = `repository-${serial++}`;
  for (const name of ['src', 'bench', 'sim', 'scripts']) mkdirSync(folder.file(`${root}/${name}`), { recursive: true });
  for (const [name, text] of Object.entries(files)) {
    const path = folder.file(`${root}/${name}`);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  }
  return checkLayers(folder.file(root)).map(({ file, rule }) => `${file}: ${rule}`);
}

test.each<[file: string, text: string, rule: string]>([
  ['src/kv/a.ts', "import { b } from '../scheduler/b.ts';", 'kv -> scheduler: imports go down only'],
  ['src/kv/a.ts', "import { b } from '../runner/b.ts';", 'kv -> runner: peers do not import each other'],
  ['src/kv/a.ts', "import { b } from 'node:fs';", 'kv is pure: it imports nothing from outside'],
  ['src/kv/a.ts', 'export const now = () => Date.now();', 'kv is synchronous: no async, clock or random numbers'],
  ['src/engine/a.ts', "import { b } from '../ggml/b.ts';", 'the engine reaches the model through an executor'],
  ['src/cli/deep/a.ts', "import { b } from '../../../bench/b.ts';", 'cli -> bench: imports go down only'],
  ['src/engine/a.ts', "import { b } from '../../sim/b.ts';", 'only `kvasir sim` runs the simulator'],
  ['src/main.ts', "import { b } from '../bench/b.ts';", 'the roots load bench by import(), when its command is called'],
  ['src/cli/a.ts', "import { b } from '../../test/support/b.ts';", 'only tests import test support'],
  ['bench/latency/a.ts', "import { b } from '../../test/support/b.ts';", 'only tests import test support'],
  ['bench/latency/a.ts', "import { b } from '../../scripts/b.ts';", 'bench -> scripts: imports go down only'],
  ['sim/a.ts', "import { b } from '../src/engine/b.ts';", 'sim -> engine: peers do not import each other'],
  ['sim/a.ts', "const b = await import('../src/server/b.ts');", 'sim -> server: imports go down only'],
  ['src/scheduler/a.fuzz.ts', "import { b } from '../../sim/b.ts';", 'a test that needs sim is there'],
  [
    'src/server/http/a.ts',
    "import { b } from '../generation/b.ts';",
    'server/http -> server/generation: imports go down',
  ],
  ['src/server/generation/a.ts', "import { b } from '../apis/openai/b.ts';", 'server/generation -> server/apis/openai'],
  ['src/server/apis/ollama/a.ts', "import { b } from '../anthropic/b.ts';", 'peers do not import each other'],
  [
    'src/server/apis/ollama/a.ts',
    "import { b } from '../../routes.ts';",
    'server/apis/ollama -> server/: imports go down',
  ],
])('%s may not have `%s`', (file, text, rule) => {
  expect(rulesBrokenBy({ [file]: text })[0]).toContain(rule);
});

test.each<[file: string, text: string]>([
  ['src/kv/a.ts', "import { b } from '../core/b.ts';"],
  ['src/kv/a.test.ts', "import { b } from '../../test/support/b.ts';"],
  ['src/engine/a.test.ts', "import { b } from '../../sim/b.ts';"],
  ['src/main.ts', "const b = await import('../bench/b.ts');"],
  ['src/cli/sim.ts', "import { b } from '../../sim/b.ts';"],
  ['bench/latency/a.ts', "import { b } from '../../src/cli/b.ts';"],
  ['sim/a.ts', "import { b } from '../src/worker/b.ts';"],
  ['scripts/a.ts', "import { b } from '../sim/b.ts';"],
  ['src/server/apis/ollama/a.ts', "import { b } from '../openai/b.ts';"],
  ['src/server/apis/ollama/a.test.ts', "import { b } from '../../server.ts';"],
  ['src/server/routes.ts', "import { b } from './operator/b.ts';"],
])('%s may have `%s`', (file, text) => {
  expect(rulesBrokenBy({ [file]: text })).toEqual([]);
});

test('a folder beside src does not import the composition root', () => {
  const [rule] = rulesBrokenBy({ 'bench/a.ts': "import { b } from '../src/compose.ts';" });
  expect(rule).toContain('only the roots');
});

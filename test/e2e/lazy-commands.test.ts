/** A command loads only its own modules. Node's coverage lists the files that a process has run, and their maps the modules in them. */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { buildCommand, main } from '../support/cli-process.ts';
import { temporaryFolder } from '../support/tiny-model.ts';

const folder = temporaryFolder();
beforeAll(buildCommand);
afterAll(() => folder.remove());

function modulesOf(...args: string[]): string[] {
  const coverage = folder.file(args.join(' '));
  const env = { ...process.env, NODE_V8_COVERAGE: coverage };
  const { status, stderr } = spawnSync(process.execPath, [main, ...args], { env, encoding: 'utf8' });
  expect(status, stderr).toBe(0);
  return readdirSync(coverage).flatMap((name) => {
    const { result } = JSON.parse(readFileSync(join(coverage, name), 'utf8')) as { result: { url: string }[] };
    return result.filter(({ url }) => url.startsWith('file:')).flatMap(({ url }) => sourcesOf(fileURLToPath(url)));
  });
}

/** Files of packages and helpers of the bundler have no map. */
function sourcesOf(file: string): string[] {
  if (!existsSync(`${file}.map`)) return [];
  const { sources } = JSON.parse(readFileSync(`${file}.map`, 'utf8')) as { sources: string[] };
  return sources.map((source) => relative('.', resolve(dirname(file), source)));
}

/** The lengths of conversations are data of both. */
const ofCommands = /^(bench|sim)\/(?!cluster\/sharegpt-lengths)|^src\/(cli\/(demo|serve|generate|sim)|compose)/;

it('kvasir --version loads no command', () => {
  const modules = modulesOf('--version');
  expect(modules).toContain('src/main.ts');
  expect(modules.filter((module) => ofCommands.test(module))).toEqual([]);
});

it('a command does not load the modules of other commands', () => {
  const modules = modulesOf('bench', '--help');
  expect(modules).toContain('bench/command.ts');
  expect(modules.filter((module) => ofCommands.test(module) && !module.startsWith('bench/'))).toEqual([]);
});

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { figuresOf } from './figures.ts';

const root = mkdtempSync(join(tmpdir(), 'kvasir-figures-'));
afterAll(() => rmSync(root, { recursive: true }));

function write(path: string, text: string): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text);
}

it('counts lines without tests, and exported names without a docstring through re-exports', () => {
  const options = { module: 'nodenext', allowImportingTsExtensions: true, noEmit: true, types: [] };
  write('tsconfig.build.json', JSON.stringify({ compilerOptions: options, include: ['src'] }));
  const exports = { '.': { types: './dist/src/index.d.ts' }, './more': { types: './dist/src/kv/more.d.ts' } };
  write('package.json', JSON.stringify({ name: 'pages', type: 'module', exports }));
  write('src/index.ts', "export { documented, bare as renamed, type Shape } from './kv/more.ts';\n");
  write(
    'src/kv/more.ts',
    '/** Says what it is. */\nexport const documented = 1;\n// Not a docstring.\nexport const bare = 2;\nexport interface Shape {}\n',
  );
  write('src/kv/more.test.ts', 'export {};\n');
  write('bench/one.ts', 'export {};\n');
  write('sim/one.ts', '\n\n');
  expect(figuresOf(root)).toEqual({
    lines: new Map([
      ['src', 1],
      ['src/kv', 5],
      ['bench', 1],
      ['sim', 2],
    ]),
    entryPoints: [
      { name: 'pages', exported: ['documented', 'renamed', 'Shape'], undocumented: ['renamed', 'Shape'] },
      { name: 'pages/more', exported: ['documented', 'bare', 'Shape'], undocumented: ['bare', 'Shape'] },
    ],
  });
});

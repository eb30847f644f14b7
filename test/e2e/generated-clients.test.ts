/** Clients that programs of others write from `/openapi.json` compile and call a server. */
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createEngine } from '../../src/compose.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import { Server } from '../../src/server/server.ts';
import { generatorsFolder, hasGenerators, hasGoGenerator, noGenerators, runIn } from '../support/client-generators.ts';
import { describeInLongForm } from '../support/long-form.ts';
import { needs } from '../support/needs.ts';
import { smallDemo } from '../support/small-demo.ts';

describeInLongForm('clients that are written from /openapi.json', () => {
  const folder = mkdtempSync(join(tmpdir(), 'kvasir-clients-'));
  const bin = (name: string): string => join(generatorsFolder, 'node_modules', '.bin', name);
  let engine: AsyncEngine;
  let server: Server;
  let origin = '';
  let document: { readonly paths: Readonly<Record<string, object>> };
  /** What each client finds. */
  let expected: object;

  beforeAll(async () => {
    engine = await createEngine({ ...smallDemo, maxModelLen: 512, pooling: 'mean' });
    server = new Server(engine, { version: '1', logLevel: 'silent' });
    origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
    document = (await (await fetch(`${origin}/openapi.json`)).json()) as typeof document;
    writeFileSync(join(folder, 'openapi.json'), JSON.stringify(document));
    cpSync('tools/compat/generated-clients', folder, { recursive: true });
    if (hasGenerators) symlinkSync(join(generatorsFolder, 'node_modules'), join(folder, 'node_modules'));
    const messages = [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'Once' },
    ];
    let chat = '';
    let tokens = 0;
    for await (const { content = '', stats } of engine.chat({ messages, params: { maxTokens: 4, temperature: 0 } })) {
      chat += content;
      tokens = stats.promptTokens + stats.outputTokens;
    }
    expected = { chat, tokens, response: 'incomplete', error: 'messages' };
  });
  afterAll(async () => {
    await server.app.close();
    await engine.close();
    rmSync(folder, { recursive: true });
  });

  async function outcomeOf(command: string, args: readonly string[], variables = {}): Promise<object> {
    return JSON.parse(await runIn(folder, command, args, { KVASIR_ORIGIN: origin, ...variables })) as object;
  }

  /** Compiles a program with its client, under the strictest rules, and runs it. */
  async function runTypeScript(program: string): Promise<object> {
    const flags = '--strict --skipLibCheck --target es2022 --lib es2023,dom,dom.iterable --types node';
    const modules = `--module commonjs --moduleResolution node10 --esModuleInterop --outDir ${program}`;
    await runIn(folder, bin('tsc'), [`${program}.ts`, ...flags.split(' '), ...modules.split(' ')]);
    return outcomeOf(process.execPath, [join(program, `${program}.js`)]);
  }

  const needsThem = (title: string, test: () => Promise<void>): void =>
    it(title, { timeout: 300_000, ...needs(hasGenerators, noGenerators) }, test);

  needsThem('redocly finds nothing wrong', async () => {
    const problems = await runIn(folder, bin('redocly'), ['lint', '--format=json', 'openapi.json']);
    expect((JSON.parse(problems) as { readonly problems: unknown }).problems).toEqual([]);
  });

  needsThem('of openapi-typescript', async () => {
    await runIn(folder, bin('openapi-typescript'), ['openapi.json', '-o', 'openapi-typescript-types.d.ts']);
    expect(await runTypeScript('openapi-typescript')).toEqual(expected);
  });

  needsThem('of hey-api', async () => {
    await runIn(folder, bin('openapi-ts'), ['-i', 'openapi.json', '-o', 'hey-api-client']);
    expect(await runTypeScript('hey-api')).toEqual(expected);
  });

  needsThem('of orval', async () => {
    await runIn(folder, bin('orval'), ['--config', 'orval.config.mjs'], { KVASIR_ORIGIN: origin });
    expect(await runTypeScript('orval')).toEqual(expected);
  });

  needsThem('of openapi-python-client, which leaves nothing out', async () => {
    const python = join(generatorsFolder, 'python', 'bin');
    const path = { PATH: `${python}${delimiter}${process.env.PATH}` };
    const args = ['generate', '--path', 'openapi.json', '--output-path', 'python', '--fail-on-warning'];
    await runIn(folder, join(python, 'openapi-python-client'), args, path);
    const PYTHONPATH = join(folder, 'python');
    expect(await outcomeOf(join(python, 'python'), ['client.py'], { PYTHONPATH })).toEqual(expected);
  });

  it('of oapi-codegen', {
    timeout: 600_000,
    ...needs(hasGenerators && hasGoGenerator, `${noGenerators}, with Go`),
  }, async () => {
    mkdirSync(join(folder, 'api'));
    const args = ['-generate', 'types,client', '-package', 'api', '-o', join('api', 'api.go'), 'openapi.json'];
    await runIn(folder, join(generatorsFolder, 'go', 'oapi-codegen'), args);
    cpSync(join(generatorsFolder, 'module'), folder, { recursive: true });
    expect(await outcomeOf('go', ['run', '.'], { GOFLAGS: '-mod=mod', GOPROXY: 'off' })).toEqual(expected);
  });
});

/** The package as users get it: packed, and installed beside its dependencies only. */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, normalize, resolve } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { buildCommand } from '../support/cli-process.ts';
import { isLongForm, itInLongForm } from '../support/long-form.ts';
import { temporaryFolder } from '../support/tiny-model.ts';

interface Manifest {
  readonly name: string;
  readonly bin?: Readonly<Record<string, string>>;
  readonly scripts?: Readonly<Record<string, string>>;
  readonly engines?: { readonly node?: string };
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly exports?: Readonly<Record<string, { readonly types: string; readonly default: string }>>;
}

const folder = temporaryFolder();
const consumer = folder.file('consumer');
const installed = join(consumer, 'node_modules', 'kvasir');
const command = () => join(installed, manifestOf(installed).bin!.kvasir!);
let tarball: string;
afterAll(() => folder.remove());

const manifestOf = (path: string) => JSON.parse(readFileSync(join(path, 'package.json'), 'utf8')) as Manifest;
const npm = (args: readonly string[], cwd: string) =>
  execFileSync('npm', args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });

/** The folder where Node finds a package that is imported in `from`. */
function folderOf(name: string, from: string): string | undefined {
  const folder = join(from, 'node_modules', name);
  if (existsSync(join(folder, 'package.json'))) return realpathSync(folder);
  return dirname(from) === from ? undefined : folderOf(name, dirname(from));
}

/** The packages that a package needs, and those that they need, except optional ones that are not installed. */
function dependenciesOf(root: string): Manifest[] {
  const found = new Map<string, Manifest>();
  const visit = (folder: string): void => {
    const { dependencies = {}, optionalDependencies = {} } = manifestOf(folder);
    for (const name of Object.keys({ ...dependencies, ...optionalDependencies })) {
      const place = folderOf(name, folder);
      if (place === undefined) expect(optionalDependencies, `${folder} needs ${name}`).toHaveProperty([name]);
      if (place === undefined || found.has(place)) continue;
      found.set(place, manifestOf(place));
      visit(place);
    }
  };
  visit(root);
  return [...found.values()];
}

/** The dependencies that do not accept the oldest Node that the package accepts: npm warns of them with EBADENGINE. */
function needingNewerNode(root: string): string[] {
  // Fastify brings it.
  const semver = createRequire(folderOf('fastify', root)!)('semver') as {
    minVersion(range: string): { readonly version: string };
    satisfies(version: string, range: string): boolean;
  };
  const oldest = semver.minVersion(manifestOf(root).engines!.node!).version;
  return dependenciesOf(root)
    .filter(({ engines }) => engines?.node !== undefined && !semver.satisfies(oldest, engines.node))
    .map(({ name, engines }) => `${name} needs Node ${engines!.node}, not ${oldest}`);
}

function link(name: string): void {
  const place = join(consumer, 'node_modules', name);
  mkdirSync(dirname(place), { recursive: true });
  symlinkSync(resolve('node_modules', name), place);
}

beforeAll(async () => {
  await buildCommand();
  mkdirSync(installed, { recursive: true });
  // `prepack` would build again, and needs Zig.
  const [packed] = JSON.parse(npm(['pack', '--ignore-scripts', '--json', '--pack-destination', consumer], '.')) as [
    { readonly filename: string },
  ];
  tarball = join(consumer, packed.filename);
  execFileSync('tar', ['-xzf', tarball, '-C', installed, '--strip-components=1']);
  const { dependencies = {}, optionalDependencies = {} } = manifestOf(installed);
  const present = new Set(readdirSync('node_modules/@node-llama-cpp').map((name) => `@node-llama-cpp/${name}`));
  for (const name of [...Object.keys(dependencies), ...Object.keys(optionalDependencies)])
    if (!name.startsWith('@node-llama-cpp/') || present.has(name)) link(name);
  writeFileSync(join(consumer, 'package.json'), '{"private":true}');
});

/** Runs a program of the consumer, and returns what it printed. */
function run(name: string, code: string): string {
  writeFileSync(join(consumer, name), code);
  return execFileSync(process.execPath, [name], { cwd: consumer, encoding: 'utf8' });
}

itInLongForm('is not packed without its kernels, unless that is wanted', () => {
  const here = folder.file('without-kernels');
  mkdirSync(here);
  const pack = (more: NodeJS.ProcessEnv) => {
    const env = { ...process.env, ZIG: '/nonexistent/zig', ...more };
    const args = [resolve('dist/scripts/prebuild.js'), '--for-package'];
    const { status, stderr } = spawnSync(process.execPath, args, { cwd: here, env, encoding: 'utf8' });
    return { status, stderr };
  };
  const reason = 'because there is no Zig. Install Zig';
  expect(pack({ npm_command: 'pack' })).toEqual({ status: 1, stderr: expect.stringContaining(reason) });
  expect(pack({ npm_command: 'publish' })).toEqual({ status: 1, stderr: expect.stringContaining(reason) });
  const warning = { status: 0, stderr: expect.stringMatching(/^WARNING: the package has no prebuilt kernels/) };
  expect(pack({ npm_command: 'pack', KVASIR_PACK_WITHOUT_KERNELS: '1' })).toEqual(warning);
  // A user who installs the repository has no Zig.
  expect(pack({ npm_command: 'install' })).toEqual(warning);
});

it('has no script that builds it, and of the modules in the bundle only the types', () => {
  expect(Object.keys(manifestOf(installed).scripts ?? {})).not.toContain('prepare');
  expect(existsSync(join(installed, 'tools/checkout'))).toBe(false);
  const files = readdirSync(join(installed, 'dist'), { recursive: true, encoding: 'utf8' });
  expect(files.filter((path) => /^src\/.*\.js$/.test(path))).toEqual([]);
  expect(files).toContain('src/index.d.ts');
  expect(files).toContain('bundle/src/main.js.map');
});

it("shows the lines of the sources in a stack, with Node's flag", () => {
  const code = `import { LLM } from 'kvasir'; import { registerConnector } from 'kvasir/connector';
    try { registerConnector('OffloadingConnector', () => {}); } catch (error) { console.log(error.stack); }`;
  writeFileSync(join(consumer, 'stack.mjs'), code);
  const stackWith = (...flags: string[]): string =>
    execFileSync(process.execPath, [...flags, 'stack.mjs'], { cwd: consumer, encoding: 'utf8' });
  expect(stackWith()).toMatch(/at registerConnector \(file:.*\/dist\/bundle\/chunks\/.*\.js:\d+:\d+\)/);
  expect(stackWith('--enable-source-maps')).toMatch(
    /at registerConnector \(.*\/src\/connector\/registry\.ts:\d+:\d+\)/,
  );
});

it("a user's connector has the classes and the registry of the running program", () => {
  // The command prints an error of Kvasir as it is, and wraps all others.
  const refusing = `import { tierClosed } from 'kvasir/connector';
    export class Refusing { constructor() { throw tierClosed({ tier: 'mine' }); } }`;
  writeFileSync(join(consumer, 'refusing.mjs'), refusing);
  const settings = { kv_connector: 'Refusing', kv_connector_module_path: './refusing.mjs', kv_role: 'kv_both' };
  const flags = ['--prompt', 'Once', '--kv-transfer-config', JSON.stringify(settings)];
  const { stderr } = spawnSync(process.execPath, [command(), 'generate', ...flags], {
    cwd: consumer,
    encoding: 'utf8',
  });
  expect(stderr).toBe('error: The tier `mine` is closed.\n');

  const registered = `import { createEngine, KvasirError } from 'kvasir';
    import { registerConnector, tierClosed } from 'kvasir/connector';
    import { CompressedConnector } from 'kvasir/examples/compressed-kv-connector';
    registerConnector('Mine', async () => CompressedConnector);
    console.log(tierClosed({ tier: 'mine' }) instanceof KvasirError);
    const kvTransferConfig = { kv_connector: 'Mine', kv_role: 'kv_both', kv_connector_extra_config: { folder: 'compressed' } };
    const options = { model: 'node_modules/kvasir/models/kvasir-demo.gguf', threads: 1, kvCacheMemory: 8 << 20, maxModelLen: 256 };
    for (const _ of [1, 2]) {
      const engine = await createEngine({ ...options, kvTransferConfig });
      const prompt = Array.from({ length: 40 }, (_, i) => 300 + i);
      for await (const { finish, stats } of engine.generate({ prompt: Int32Array.from(prompt), params: { maxTokens: 1 } }))
        if (finish) console.log(stats.externalTokens ?? 0);
      await engine.close();
    }`;
  mkdirSync(join(consumer, 'compressed'));
  expect(run('registered.mjs', registered)).toBe('true\n0\n32\n');
});

it('its documents link to files in it', () => {
  const files = readdirSync(installed, { recursive: true, encoding: 'utf8' });
  const documents = files.filter((path) => path.endsWith('.md'));
  expect(documents).toContain('docs/library.md');
  const broken = documents.flatMap((document) => {
    const text = readFileSync(join(installed, document), 'utf8').replace(/```[\s\S]*?```/g, '');
    return [...text.matchAll(/\]\(([^)\s#]+)[^)\s]*\)/g)]
      .map(([, path]) => path!)
      .filter(
        (path) =>
          !/^[a-z]+:/.test(path) && !files.includes(normalize(join(dirname(document), path)).replace(/\/$/, '')),
      )
      .map((path) => `${document}: ${path}`);
  });
  expect(broken).toEqual([]);
});

it('its dependencies bring no compiler', () => {
  const names = dependenciesOf(installed).map(({ name }) => name);
  expect(names.length).toBeGreaterThan(20);
  const compilers = names.filter((name) => /^(typescript|esbuild|node-gyp|cmake-js|node-addon-api|vitest)$/.test(name));
  expect(compilers).toEqual([]);
});

it('its dependencies run on the oldest Node that it accepts', () => {
  expect(needingNewerNode(installed)).toEqual([]);
});

it('runs in ESM and in CommonJS, with the bundled model, and serves', () => {
  const use = `
    const llm = new LLM({ model: 'node_modules/kvasir/models/kvasir-demo.gguf', threads: 1, kvCacheMemory: 8 << 20, maxModelLen: 256 });
    const [output] = await llm.generate('Once upon a time', { maxTokens: 8, temperature: 0 });
    console.log(output.outputs[0].text);
    await llm.close();`;
  const fromModule = run('esm.mjs', `import { LLM } from 'kvasir';${use}`);
  expect(fromModule.length).toBeGreaterThan(8);
  const script = `(async () => { const { LLM } = await import('kvasir');${use}
    const { createServer } = await import('kvasir/server');
    const { kvasir } = await import('kvasir/ai-sdk');
    console.log(typeof createServer, typeof kvasir); })();`;
  expect(run('script.cjs', script)).toBe(`${fromModule}function function\n`);
  const version = execFileSync(process.execPath, [command(), '--version'], { encoding: 'utf8' });
  expect(version.trim()).toBe('0.1.0');
});

it('exports its examples, as its documents name them', () => {
  const names = readdirSync('docs')
    .filter((name) => name.endsWith('.md'))
    .flatMap((name) => readFileSync(join('docs', name), 'utf8').match(/kvasir\/examples\/[\w/-]+/g) ?? []);
  const modules = [...new Set(names), 'kvasir/examples/disaggregated/router'];
  expect(modules.length).toBeGreaterThan(3);
  const code = `for (const name of ${JSON.stringify(modules)}) console.log(Object.keys(await import(name)).join());`;
  const exported = run('examples.mjs', code);
  for (const name of ['MapConnector', 'FolderTier', 'CompressedConnector']) expect(exported).toContain(name);
  // The command line finds them too, in the folder that has node_modules.
  const transfer = ['MapConnector', 'kvasir/examples/map-connector'];
  const args = ['kv_connector', 'kv_connector_module_path'].flatMap((name, i) => [
    `--kv-transfer-config.${name}`,
    transfer[i]!,
  ]);
  const { status, stderr } = spawnSync(
    process.execPath,
    [
      command(),
      'generate',
      '--prompt',
      'Once',
      '--max-tokens',
      '1',
      '--kv-cache-memory',
      '16MiB',
      '--max-model-len',
      '256',
      ...args,
      '--kv-transfer-config.kv_role',
      'kv_both',
    ],
    { cwd: consumer, encoding: 'utf8' },
  );
  expect(status, stderr).toBe(0);
});

it('has types for every entry point', () => {
  expect(Object.keys(manifestOf(installed).exports ?? {})).toEqual([
    '.',
    './connector',
    './server',
    './tracing',
    './ai-sdk',
    './examples/compressed-kv-connector',
    './examples/*',
  ]);
  for (const name of ['@types/node', '@ai-sdk/provider', 'undici-types']) link(name);
  const options = {
    compilerOptions: {
      module: 'nodenext',
      target: 'es2023',
      lib: ['es2023', 'esnext.disposable'],
      types: ['node'],
      strict: true,
      noEmit: true,
    },
    files: ['consumer.ts', 'json-schema.d.ts'],
  };
  writeFileSync(join(consumer, 'tsconfig.json'), JSON.stringify(options));
  writeFileSync(
    join(consumer, 'consumer.ts'),
    `import { createEngine, type ChatDelta } from 'kvasir';
     import type { Tier } from 'kvasir/connector';
     import { kvasir } from 'kvasir/ai-sdk';
     import { createServer } from 'kvasir/server';
     const engine = await createEngine({ model: 'm.gguf' });
     for await (const delta of engine.chat({ messages: [{ role: 'user', content: 'x' }] })) {
       const { content }: ChatDelta = delta;
       const text: string = content;
       console.log(text);
     }
     const handler: (request: never, response: never) => void = createServer(engine).handler;
     const version: 'v3' = kvasir(engine).specificationVersion;
     export const nameOf = ({ name }: Tier): string => name;
     export { handler, version };`,
  );
  // The AI SDK's types import types that it does not bring.
  writeFileSync(
    join(consumer, 'json-schema.d.ts'),
    "declare module 'json-schema' { type JSONSchema7 = object; type JSONSchema7Definition = object; }",
  );
  writeFileSync(join(consumer, 'package.json'), '{"private":true,"type":"module"}');
  const compiler = resolve('node_modules/.bin/tsc');
  const { stdout, status } = spawnSync(compiler, ['-p', 'tsconfig.json'], { cwd: consumer, encoding: 'utf8' });
  expect({ stdout, status }).toEqual({ stdout: '', status: 0 });
});

it('installs into an empty folder, with nothing that compiles and no warning of the version of Node', () => {
  // It downloads all dependencies, so the default run only checks the tarball's name.
  expect(tarball).toMatch(/kvasir-0\.1\.0\.tgz$/);
  if (!isLongForm) return;
  const fresh = folder.file('fresh');
  mkdirSync(fresh);
  writeFileSync(join(fresh, 'package.json'), '{"private":true}');
  const args = ['install', '--no-audit', '--no-fund', '--loglevel=warn', tarball];
  const { status, stderr } = spawnSync('npm', args, { cwd: fresh, encoding: 'utf8' });
  expect(status, stderr).toBe(0);
  expect(stderr).not.toContain('EBADENGINE');
  // Versions of indirect dependencies may be newer here than in this repository.
  expect(needingNewerNode(join(fresh, 'node_modules', 'kvasir'))).toEqual([]);
  expect(readdirSync(join(fresh, 'node_modules'))).not.toContain('typescript');
  const code = `import { createEngine } from 'kvasir';
    const engine = await createEngine({ model: 'node_modules/kvasir/models/kvasir-demo.gguf', kvCacheMemory: 8 << 20, maxModelLen: 256 });
    for await (const { text } of engine.generate({ prompt: 'Once', params: { maxTokens: 5 } })) process.stdout.write(text);
    await engine.close();`;
  writeFileSync(join(fresh, 'five-lines.mjs'), code);
  expect(execFileSync(process.execPath, ['five-lines.mjs'], { cwd: fresh, encoding: 'utf8' })).not.toBe('');
});

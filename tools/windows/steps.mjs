/**
 * What is tried on Windows (Wine), step by step. Prints a line for each, and ends with 1 if one fails.
 *
 *   node tools/windows/steps.mjs FOLDER [STEP ...]     FOLDER is that of run.sh
 */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, relative } from 'node:path';
import { writeAdapter } from '../../dist/bench/make-model/adapter-maker.js';
import { writeTinyModel } from '../../dist/bench/make-model/model-maker.js';
import { inConsole } from './console.mjs';
import { Machine, until } from './machines.mjs';

const [home, ...wanted] = process.argv.slice(2);
const work = mkdtempSync(join(home, 'work-'));
const [linux, windows] = [new Machine(home, 'linux'), new Machine(home, 'windows')];
const machines = [linux, windows];
const common = ['--threads', '1', '--kv-cache-memory', '64MiB', '--max-model-len', '1024'];
const greedy = ['--temperature', '0', '--max-tokens', '24'];
const prompt = 'Once upon a time there was a small fox who lived in a castle. '.repeat(6);
const port = 18_600 + (process.pid % 300) * 4;

function files(folder) {
  const all = readdirSync(folder, { recursive: true, withFileTypes: true });
  return all.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name)).sort();
}
const blocks = (folder) => files(folder).filter((path) => path.endsWith('.kv'));

/** The models by name. The third has random weights, unless `.ci/run` has fetched SmolLM2. */
async function models() {
  const real = join(process.env.KVASIR_REAL_MODELS ?? join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'kvasir', 'real-models'), 'SmolLM2-135M-Instruct.Q4_1.gguf');
  const made = join(work, 'made.gguf');
  await writeTinyModel(made, { architecture: 'gemma3', type: 'Q8_0', layers: 3, windowPattern: 3 });
  return {
    demo: join(linux.models, 'kvasir-demo.gguf'),
    hybrid: join(linux.models, 'kvasir-hybrid.gguf'),
    ...(existsSync(real) ? { smollm2: real } : { made }),
  };
}

const disk = (machine, folder) => [
  '--kv-transfer-config',
  JSON.stringify({ kv_connector: 'SharedStorageConnector', kv_role: 'kv_both', kv_connector_extra_config: { shared_storage_path: machine.path(folder) } }),
];

const steps = {
  /** npm has installed the libraries and kernels for Windows, and all can be loaded. */
  install() {
    assert.equal(windows.kvasir(['--version']).stdout.trim(), linux.kvasir(['--version']).stdout.trim());
    const { stdout } = windows.kvasir(['doctor']);
    const missing = stdout.split('\n').filter((line) => /\bmissing\b/.test(line));
    assert.deepEqual(missing, []);
    return stdout.split('\n').find((line) => line.startsWith('kernel level'));
  },

  /** The texts, token ids and log probabilities of Linux. */
  async texts() {
    const found = await models();
    for (const [name, path] of Object.entries(found)) {
      for (const how of [greedy, ['--temperature', '0.8', '--seed', '42', '--max-tokens', '24']]) {
        const [here, there] = machines.map((machine) =>
          machine.generate(['--model', machine.path(path), '--prompt', prompt, ...common, ...how]),
        );
        assert.deepEqual(there, here, name);
      }
    }
    return Object.keys(found).join(', ');
  },

  /** Stores that each fills alone have the same files and bytes; each loads what the other has stored; then both use one store at once. */
  async store() {
    const details = [];
    for (const [name, path] of Object.entries(await models())) {
      const [here, there] = machines.map((machine) => {
        const folder = join(work, `store-${machine.name}-${name}`);
        mkdirSync(folder);
        return { machine, folder, result: machine.generate(['--model', machine.path(path), '--prompt', prompt, ...common, ...greedy, ...disk(machine, folder)]) };
      });
      assert.deepEqual(there.result, here.result, name);
      const [ours, theirs] = [here, there].map(({ folder }) => blocks(folder));
      assert.ok(ours.length > 0, 'blocks are stored');
      assert.deepEqual(theirs.map((file) => relative(there.folder, file)), ours.map((file) => relative(here.folder, file)));
      for (const [i, file] of ours.entries()) assert.ok(readFileSync(file).equals(readFileSync(theirs[i])), file);
      for (const [reader, folder] of [[windows, here.folder], [linux, there.folder]]) {
        const again = reader.generate(['--model', reader.path(path), '--prompt', prompt, ...common, ...greedy, ...disk(reader, folder)]);
        assert.ok(again.usage.prompt_tokens_details.cached_tokens > 0, `${reader.name} loads`);
        assert.deepEqual([again.text, again.logprobs], [here.result.text, here.result.logprobs]);
      }
      details.push(`${name}: ${ours.length} blocks`);
    }
    const shared = join(work, 'shared');
    const servers = [];
    for (const [i, machine] of machines.entries()) servers.push(await machine.serve([...common, '--kv-tier', `disk:${machine.path(shared)}:1GiB`], port + i));
    let cached = 0;
    for (let round = 0; round < 8; round++) {
      const text = `${'The fox saw a bird. '.repeat(10)}${round % 4}. ${prompt}`;
      // Rounds of different prompts at the same time, then each asks for what the other has computed.
      const [first, second] = await Promise.all(servers.map((server, i) => server.complete(round < 4 ? text : `${'The fox saw a bird. '.repeat(10)}${(round + i) % 4}. ${prompt}`)));
      if (round < 4) assert.equal(first.text, second.text);
      cached += first.cached + second.cached;
    }
    for (const server of servers) assert.equal(await server.stop(), '0');
    assert.ok(cached > 0);
    return `${details.join(', ')}; 0 differences; both servers at once: ${cached} tokens loaded`;
  },

  /** A disk tier with a long path, spaces, letters of other alphabets; files that are cut, changed or held open. */
  async disk() {
    const long = join(work, 'käse und größe 日本', ...Array.from({ length: 5 }, (_, i) => `${i}`.repeat(50)));
    const flags = [...common, '--kv-tier', `disk:${windows.path(long)}:64MiB`];
    let server = await windows.serve(flags, port);
    const whole = await server.complete(prompt);
    assert.equal(await server.stop(), '0');
    const stored = blocks(long);
    assert.ok(stored.length > 4 && stored[0].length > 300, `${stored.length} blocks`);
    truncateSync(stored[0], 100);
    const changed = readFileSync(stored[1]);
    changed[changed.length - 1] ^= 1;
    writeFileSync(stored[1], changed);
    rmSync(stored[2]);
    // A process of Windows holds the other files open.
    const holder = join(work, 'hold.mjs');
    writeFileSync(holder, `import fs from 'node:fs'; for (const path of ${JSON.stringify(stored.slice(3).map((path) => windows.path(path)))}) fs.openSync(path, 'r');
      fs.writeFileSync(${JSON.stringify(windows.path(join(work, 'held')))}, ''); setInterval(() => { if (fs.existsSync(${JSON.stringify(windows.path(join(work, 'release')))})) process.exit(); }, 100);`);
    const held = spawn('sh', ['-c', 'exec wine "$0" "$1" > /dev/null 2>&1', join(home, 'node-20.20.2', 'node.exe'), windows.path(holder)]);
    await until('the open files', () => existsSync(join(work, 'held')));
    server = await windows.serve(flags, port);
    const again = await server.complete(prompt);
    assert.equal(again.text, whole.text);
    assert.equal(await server.stop(), '0');
    writeFileSync(join(work, 'release'), '');
    await until('the end of the holder', () => held.exitCode !== null);
    // The blocks were stored again.
    assert.deepEqual(blocks(long).filter((path) => !path.includes('quarantine')), stored);
    const other = await windows.serve(flags.map((flag) => flag.replace('Z:\\', 'z:\\')), port);
    const loaded = await other.complete(prompt);
    assert.equal(loaded.text, whole.text);
    assert.ok(loaded.cached > 0);
    assert.equal(await other.stop(), '0');
    return `${stored.length} files with paths of ${stored[0].length} characters`;
  },

  /** The whole demo: servers with stores and ranks that fail. */
  demo() {
    const { stdout } = windows.kvasir(['demo', '--threads', '1'], { limitMs: 3_000_000 });
    return stdout.trim().split('\n').at(-1);
  },

  /** Streams, the page, and an end that waits for a running request. */
  async serve() {
    const server = await windows.serve(common, port);
    const body = { messages: [{ role: 'user', content: 'Tell me a story about a fox named Max.' }], temperature: 0, max_tokens: 30 };
    const { json } = await server.json('/v1/chat/completions', body);
    const text = json.choices[0].message.content;
    const { text: events } = await server.json('/v1/chat/completions', { ...body, stream: true });
    const streamed = events.matchAll(/^data: (\{.*\})$/gm);
    assert.equal([...streamed].map(([, event]) => JSON.parse(event).choices[0]?.delta.content ?? '').join(''), text);
    const browser = spawnSync('chromium', ['--headless', '--no-sandbox', '--disable-gpu', '--virtual-time-budget=20000', '--dump-dom', `${server.origin}/`], { encoding: 'utf8', timeout: 120_000 });
    if (browser.error === undefined) assert.match(browser.stdout, /kvasir-demo/);
    const running = server.complete(prompt, { max_tokens: 60, ignore_eos: true });
    await until('the request', async () => /num_requests_running\{[^}]*\} 1/.test((await server.json('/metrics')).text));
    const [code, answer] = await Promise.all([server.stop(), running]);
    assert.equal(code, '0');
    assert.ok(answer.text.length > 100);
    assert.match(server.log, /the running request ended/);
    return browser.error === undefined ? 'with the page in Chromium' : 'without the page: no Chromium';
  },

  /** Each model is a process, behind a named pipe. Killed ones are loaded again. */
  async models() {
    const folder = join(work, 'models');
    mkdirSync(join(folder, 'sub'), { recursive: true });
    copyFileSync(join(linux.models, 'kvasir-demo.gguf'), join(folder, 'demo.gguf'));
    copyFileSync(join(linux.models, 'kvasir-hybrid.gguf'), join(folder, 'sub', 'Hybrid.gguf'));
    const server = await windows.serve([...common, '--model-dir', windows.path(folder)], port);
    const { json } = await server.json('/v1/models');
    assert.deepEqual(json.data.map(({ id }) => id).sort(), ['demo', 'sub/Hybrid']);
    const ask = () => Promise.all(['demo', 'sub/Hybrid'].map((model) => server.complete(prompt, { model })));
    const before = await ask();
    const worker = spawnSync('pgrep', ['-f', 'model-worker -- demo'], { encoding: 'utf8' }).stdout.trim().split('\n').map(Number);
    assert.ok(worker.length > 0);
    for (const id of worker) process.kill(id, 'SIGKILL');
    await until('the killed model', async () => (await server.json('/v1/completions', { prompt, model: 'demo', max_tokens: 1 })).status === 200);
    assert.deepEqual((await ask()).map(({ text }) => text), before.map(({ text }) => text));
    assert.equal(await server.stop(), '0');
    await until('the end of the processes', () => spawnSync('pgrep', ['-f', 'model-worker -- ']).status !== 0, 30_000);
    return 'two models, one killed';
  },

  /** Two ranks, each a process; one is killed while it decodes. */
  async ranks() {
    const server = await windows.serve([...common, '--pipeline-parallel-size', '2'], port);
    const before = await server.complete(prompt, { max_tokens: 60 });
    const ids = () => spawnSync('pgrep', ['-f', 'worker-main'], { encoding: 'utf8' }).stdout.trim().split('\n').filter(Boolean).map(Number);
    const [first] = ids();
    assert.ok(first !== undefined);
    const running = server.complete(`${prompt} `, { max_tokens: 60, ignore_eos: true });
    await until('the request', async () => /num_requests_running\{[^}]*\} 1/.test((await server.json('/metrics')).text));
    process.kill(first, 'SIGKILL');
    assert.ok((await running).text.length > 0);
    assert.equal((await server.complete(prompt, { max_tokens: 60 })).text, before.text);
    assert.equal(await server.stop(), '0');
    await until('the end of the ranks', () => ids().length === 0, 30_000);
    return 'one of two killed';
  },

  /** Host memory above Redis: a second server loads what the first has stored. */
  async redis() {
    if (spawnSync('redis-server', ['--version']).status !== 0) return 'not tried: no redis-server';
    const redis = spawn('redis-server', ['--port', String(port + 3), '--save', '', '--appendonly', 'no'], { stdio: 'ignore' });
    try {
      const flags = [...common, '--kv-tier', 'host:8MiB', '--kv-tier', `redis://127.0.0.1:${port + 3}`];
      const texts = [];
      for (const machine of [windows, linux, windows]) {
        const server = await machine.serve(flags, port);
        const { text, cached } = await server.complete(prompt);
        if (texts.length > 0) assert.ok(cached > 0, `${machine.name} loads`);
        texts.push(text);
        assert.equal(await server.stop(), '0');
      }
      assert.equal(new Set(texts).size, 1);
      return 'stored by Windows, loaded by Linux and by Windows';
    } finally {
      redis.kill();
    }
  },

  /** An adapter changes the text as on Linux. */
  async lora() {
    const [model, adapter] = [join(linux.models, 'kvasir-demo.gguf'), join(work, 'adapter.gguf')];
    await writeAdapter(adapter, model, { rank: 4 });
    const results = [];
    for (const machine of machines) {
      const server = await machine.serve([machine.path(model), ...common, '--lora-modules', `other=${machine.path(adapter)}`], port);
      const [base, other] = [await server.complete(prompt), await server.complete(prompt, { model: 'other' })];
      results.push([base.text, other.text]);
      assert.equal(await server.stop(), '0');
    }
    assert.deepEqual(results[1], results[0]);
    assert.notEqual(results[0][0], results[0][1]);
    return 'the text of Linux';
  },

  /** A chat in a console, Ctrl-C while it answers, and Ctrl-C for a server. */
  console: () => inConsole(windows, home, work, common),
};

const chosen = wanted.length > 0 ? wanted : Object.keys(steps);
let failed = 0;
for (const name of chosen) {
  const begin = Date.now();
  const seconds = () => `${Math.round((Date.now() - begin) / 1000)} s`;
  try {
    const detail = await steps[name]();
    console.log(`ok    ${name} (${seconds()}): ${detail}`);
  } catch (error) {
    failed++;
    console.log(`FAIL  ${name} (${seconds()}): ${error.stack}`);
  }
}
rmSync(work, { recursive: true, force: true });
for (const name of readdirSync(home).filter((each) => /^(run|serve)-/.test(each))) rmSync(join(home, name), { recursive: true, force: true });
console.log(`${chosen.length - failed} of ${chosen.length} steps passed`);
process.exit(failed === 0 ? 0 : 1);

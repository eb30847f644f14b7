/** Kvasir on Linux and on Windows (Wine): the same commands on both. */
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const nodeVersion = '20.20.2';
const main = join('node_modules', 'kvasir', 'dist', 'bundle', 'src', 'main.js');
const forWine = fileURLToPath(new URL('wine-sockets.mjs', import.meta.url));
const supervisor = fileURLToPath(new URL('supervise.mjs', import.meta.url));

/** Waits for a state that causes no event. */
export async function until(what, isThere, limitMs = 600_000) {
  const end = Date.now() + limitMs;
  for (;;) {
    const found = await isThere();
    if (found) return found;
    if (Date.now() > end) throw new Error(`waited ${limitMs} ms for ${what}`);
    await sleep(200);
  }
}

export class Machine {
  constructor(home, name) {
    this.home = home;
    this.name = name;
    this.isWindows = name === 'windows';
    this.folder = join(home, name);
    this.models = join(this.folder, 'node_modules', 'kvasir', 'models');
  }

  /** A path of Linux as this machine names it: Wine has Linux's root as drive Z. */
  path(path) {
    return this.isWindows ? `Z:${path.replaceAll('/', '\\')}` : path;
  }

  get environment() {
    return this.isWindows ? { ...process.env, NODE_OPTIONS: `--import file:///Z:${encodeURI(forWine)}` } : process.env;
  }

  #command(args) {
    return this.isWindows ? ['wine', join(this.home, `node-${nodeVersion}`, 'node.exe'), ...args] : [process.execPath, ...args];
  }

  /** Runs a program of Node to its end. */
  node(args, { env = {}, limitMs = 1_200_000 } = {}) {
    const folder = mkdtempSync(join(this.home, 'run-'));
    const redirected = ['-c', '"$@" < /dev/null > "$0/stdout" 2> "$0/stderr"', folder, ...this.#command(args)];
    const { status } = spawnSync('sh', redirected, { cwd: this.folder, env: { ...this.environment, ...env }, timeout: limitMs });
    const read = (name) => readFileSync(join(folder, name), 'utf8');
    return { code: status, stdout: read('stdout'), stderr: read('stderr') };
  }

  /** Runs a command of Kvasir to its end. Throws if its exit code is another one. */
  kvasir(args, { code = 0, ...options } = {}) {
    const result = this.node([main, ...args], options);
    if (result.code !== code) throw new Error(`${this.name}: kvasir ${args[0]} ended with ${result.code}: ${result.stderr}${result.stdout}`);
    return result;
  }

  /** The JSON line of `kvasir generate`, with log probabilities. */
  generate(args, options) {
    return JSON.parse(this.kvasir(['generate', '--json', '--logprobs', '2', ...args], options).stdout);
  }

  /** A server that answers, on a port of this step. */
  async serve(args, port) {
    const folder = mkdtempSync(join(this.home, 'serve-'));
    mkdirSync(join(folder, 'tmp'));
    const command = [supervisor, folder, join(this.folder, main), 'serve', '--port', String(port), ...args];
    const paths = command.map((part, i) => (i < 3 ? this.path(part) : part));
    const [program, ...rest] = this.#command(paths);
    const child = spawn(program, rest, { cwd: this.folder, env: this.environment, stdio: 'ignore' });
    const read = (name) => (existsSync(join(folder, name)) ? readFileSync(join(folder, name), 'utf8') : undefined);
    const server = new Server(`http://127.0.0.1:${port}`, read, () => writeFileSync(join(folder, 'stop'), ''), child);
    await until(`${this.name}'s server`, async () => {
      if (server.exitCode !== undefined) throw new Error(`${this.name}'s server ended: ${server.log}`);
      return (await fetch(`${server.origin}/health`).catch(() => undefined))?.ok;
    });
    return server;
  }
}

class Server {
  constructor(origin, read, stop, child) {
    this.origin = origin;
    this.read = read;
    this.askToStop = stop;
    this.child = child;
  }

  get log() {
    return this.read('stderr') ?? '';
  }

  get exitCode() {
    return this.read('exit');
  }

  async json(path, body) {
    const init = body === undefined ? {} : { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
    const response = await fetch(`${this.origin}${path}`, init);
    const text = await response.text();
    return { status: response.status, text, json: text.startsWith('{') ? JSON.parse(text) : undefined };
  }

  async complete(prompt, more = {}) {
    const { status, json, text } = await this.json('/v1/completions', { prompt, max_tokens: 24, temperature: 0, ...more });
    if (status !== 200) throw new Error(`${status} ${text}`);
    return { text: json.choices[0].text, cached: json.usage.prompt_tokens_details.cached_tokens };
  }

  /** Its exit code. */
  async stop() {
    this.askToStop();
    return until('the end of the server', () => this.exitCode, 120_000);
  }
}

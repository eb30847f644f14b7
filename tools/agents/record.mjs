/**
 * Runs real programs against a server whose answers are scripted, and keeps their requests, trimmed, in `test/data/agents`:
 *
 *     npm run build && node tools/agents/record.mjs [--programs DIR] [--raw DIR] [--template FILE] [NAME ...]
 *
 * `--programs` is the folder in which the pinned versions are installed (default: a temporary one). `--raw` keeps the untrimmed requests. Needs Node 22
 * or newer, which some of the programs want. All programs run in an empty home folder with their telemetry off, and talk to 127.0.0.1 only.
 */
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import { programs } from './programs.mjs';
import { scriptedServer } from './scripted-server.mjs';
import { trimRequests } from './trim.mjs';

const question = 'What is in a.txt and b.txt?';
const answer = { thought: 'Both files are here.', text: 'I read both files.' };
const last = 'The files have one word each.';
const timeoutMs = 120_000;
/** Shows calls and thoughts, so that the server reads them in answers. */
const chatMl =
  '{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}\n' +
  '{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}{{ message.content }}{{ message.tool_calls }}' +
  '<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}';

const { values: flags, positionals } = parseArgs({
  options: { programs: { type: 'string' }, raw: { type: 'string' }, template: { type: 'string' } },
  allowPositionals: true,
});
const root = mkdtempSync(join(tmpdir(), 'kvasir-agents-'));
const installed = flags.programs ?? join(root, 'programs');
for (const name of positionals.length === 0 ? Object.keys(programs) : positionals) await record(name, programs[name]);
rmSync(root, { recursive: true });
process.exit();

async function record(name, program) {
  const folder = install(program);
  const home = join(root, name, 'home');
  const work = join(root, name, 'project');
  for (const path of [home, work]) mkdirSync(path, { recursive: true });
  writeFileSync(join(work, 'a.txt'), 'one\n');
  writeFileSync(join(work, 'b.txt'), 'two\n');
  const kept = [];
  const chatTemplate = flags.template === undefined ? chatMl : readFileSync(flags.template, 'utf8');
  const server = await scriptedServer({ kept, chatTemplate, answerTo: (_, body) => nextAnswer(body, program.calls({ work })) });
  const given = { origin: server.origin, home, work, question, bin: (file) => join(folder, file) };
  for (const [path, text] of Object.entries(program.files?.(given) ?? {})) {
    mkdirSync(dirname(join(home, path)), { recursive: true });
    writeFileSync(join(home, path), text);
  }
  const commands = [...(program.before === undefined ? [] : [program.before(given)]), program.command(given)];
  let output = '';
  for (const command of commands) output = await run(command, { cwd: work, env: { ...environment(home), ...program.env?.(given) } });
  await server.close();
  if (flags.raw !== undefined) writeFileSync(join(flags.raw, `${name}.json`), JSON.stringify(kept, null, 1));
  const failed = kept.filter(({ status }) => status !== 200);
  for (const { path, status, error } of failed) console.log(`${name}: ${path} ${status} ${error}`);
  if (!output.includes(last)) console.log(`${name}: the last answer was not printed: ${output.slice(-2000)}`);
  const requests = kept.filter(({ body }) => body !== undefined);
  const recorded = new Date().toISOString().slice(0, 10);
  const title = { program: program.title, package: program.npm ?? program.pypi, version: program.version, recorded };
  const recording = { ...title, answer: { ...answer, calls: program.calls({ work }).map(([tool]) => tool) } };
  const trimmed = trimRequests({ ...recording, requests: requests.map(({ path, body }) => ({ path, body })) }, [
    [work, '/home/user/project'],
    [home, '/home/user'],
    [server.origin, 'http://127.0.0.1:8000'],
    // Codex names its first agent so.
    ['/root', '/agent'],
  ]);
  mkdirSync('test/data/agents', { recursive: true });
  writeFileSync(`test/data/agents/${name}.json`, `${JSON.stringify(trimmed, null, 1)}\n`);
  console.log(`${name}: ${requests.length} requests`);
}

/** The folder with the program's executables. */
function install({ npm, pypi, version }) {
  const folder = join(installed, `${(npm ?? pypi).replaceAll('/', '+')}-${version}`);
  const bin = join(folder, npm === undefined ? 'bin' : 'node_modules/.bin');
  if (existsSync(bin)) return bin;
  mkdirSync(folder, { recursive: true });
  if (npm !== undefined) execFileSync('npm', ['install', '--no-audit', '--no-fund', '--prefix', folder, `${npm}@${version}`]);
  else {
    execFileSync('python3', ['-m', 'venv', folder]);
    execFileSync(join(bin, 'pip'), ['install', '-q', `${pypi}==${version}`]);
  }
  return bin;
}

function environment(home) {
  const path = `${dirname(process.execPath)}:/usr/local/bin:/usr/bin:/bin`;
  return { PATH: path, HOME: home, LANG: 'C.UTF-8', TERM: 'dumb', DO_NOT_TRACK: '1' };
}

function run([file, ...args], options) {
  return new Promise((resolve) => {
    const child = spawn(file, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'], timeout: timeoutMs, killSignal: 'SIGKILL' });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
    child.on('close', () => resolve(output));
  });
}

/** The calls first, a text when their results are there, and a title where the program offers no tools. */
function nextAnswer({ tools = [], messages, input }, calls) {
  const items = messages ?? (Array.isArray(input) ? input : []);
  const hasAnswered = items.some(({ role, type }) => role === 'tool' || type === 'function_call_output' || hasResult(role, items));
  if (tools.length === 0 || hasAnswered || calls.length === 0) return last;
  const written = calls.map(([name, given]) => `<tool_call>\n${JSON.stringify({ name, arguments: given })}\n</tool_call>`);
  return `<think>\n${answer.thought}\n</think>\n\n${answer.text}\n${written.join('\n')}`;
}

function hasResult(role, items) {
  return role === 'user' && items.some(({ content }) => Array.isArray(content) && content.some(({ type }) => type === 'tool_result'));
}

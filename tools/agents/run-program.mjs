/** Runs one of `programs.mjs` in an empty home folder against a server whose answers are scripted. */
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { scriptedServer } from './scripted-server.mjs';

/**
 * `answerTo(body, calls)` gives the model's text, where `calls` are those of the program. Resolves with the requests, as `scriptedServer` keeps them, and
 * what the program printed. `folder`: where pinned versions are installed; `files`: more files of the folder in which the program runs.
 */
export async function runProgram(program, { folder, answerTo, files = {}, env = {}, server: options = {}, context = 400_000, timeoutMs = 120_000 }) {
  const root = mkdtempSync(join(tmpdir(), 'kvasir-agents-'));
  const bin = install(program, folder ?? join(root, 'programs'));
  const home = join(root, 'home');
  const work = join(root, 'project');
  write(work, { 'a.txt': 'one\n', 'b.txt': 'two\n', ...files });
  const kept = [];
  const calls = program.calls({ work });
  const server = await scriptedServer({ chatTemplate: chatMl, ...options, kept, answerTo: (_, body) => answerTo(body, calls) });
  const given = { origin: server.origin, home, work, question, context, bin: (file) => join(bin, file) };
  write(home, program.files?.(given) ?? {});
  const commands = [...(program.before === undefined ? [] : [program.before(given)]), program.command(given)];
  let output = '';
  for (const command of commands)
    output = await run(command, { cwd: work, timeout: timeoutMs, env: { ...environment(home), ...program.env?.(given), ...env } });
  await server.close();
  rmSync(root, { recursive: true });
  return { kept, output, calls, home, work, origin: server.origin };
}

export const question = 'What is in a.txt and b.txt?';

/** Shows calls and thoughts, so that the server reads them in answers. */
const chatMl =
  '{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}\n' +
  '{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}{{ message.content }}{{ message.tool_calls }}' +
  '<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}';

function write(folder, files) {
  mkdirSync(folder, { recursive: true });
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), text);
  }
}

/** The folder with the program's executables. */
function install({ npm, pypi, version }, folder) {
  const place = join(folder, `${(npm ?? pypi).replaceAll('/', '+')}-${version}`);
  const bin = join(place, npm === undefined ? 'bin' : 'node_modules/.bin');
  if (existsSync(bin)) return bin;
  mkdirSync(place, { recursive: true });
  if (npm !== undefined) execFileSync('npm', ['install', '--no-audit', '--no-fund', '--prefix', place, `${npm}@${version}`]);
  else {
    execFileSync('python3', ['-m', 'venv', place]);
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
    const child = spawn(file, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'], killSignal: 'SIGKILL' });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
    child.on('close', () => resolve(output));
  });
}

/** A text with calls, as a model with this chat template writes it. */
export function writeAnswer({ thought, text }, calls, template = chatMl) {
  if (template.includes('[TOOL_CALLS]'))
    return `${text}${calls.map(([name, given]) => `[TOOL_CALLS]${name}[ARGS]${JSON.stringify(given)}`).join('')}`;
  const isTagged = template.includes('<function=');
  // The prompt of such a template ends with the start of a thought.
  const think = thought === undefined ? '' : `${isTagged ? '' : '<think>\n'}${thought}\n</think>\n\n`;
  const write = isTagged ? taggedCall : ([name, given]) => JSON.stringify({ name, arguments: given });
  return `${think}${text}\n\n${calls.map((call) => `<tool_call>\n${write(call)}\n</tool_call>`).join('\n')}`;
}

function taggedCall([name, given]) {
  const written = Object.entries(given).map(([key, value]) => {
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    return `<parameter=${key}>\n${text}\n</parameter>\n`;
  });
  return `<function=${name}>\n${written.join('')}</function>`;
}

/** Messages, or the items of the Responses API. */
export const itemsOf = ({ messages, input }) => messages ?? (Array.isArray(input) ? input : []);

/** Results of calls that a request has. */
export const countResults = (body) =>
  itemsOf(body).reduce((sum, { role, type, content }) => {
    if (role === 'tool' || type === 'function_call_output') return sum + 1;
    return sum + (Array.isArray(content) ? content.filter((block) => block.type === 'tool_result').length : 0);
  }, 0);

/**
 * Runs real programs against a server whose answers are scripted, and keeps their requests, trimmed, in `test/data/agents`:
 *
 *     npm run build && node tools/agents/record.mjs [--programs DIR] [--raw DIR] [--template FILE] [NAME ...]
 *
 * `--programs` is the folder in which the pinned versions are installed (default: a temporary one). `--raw` keeps the untrimmed requests. With the chat
 * template of a model in `--template`, nothing is kept: the run only shows whether the program's turns work with it. Needs Node 22 or newer, which some
 * programs want. All programs run in an empty home folder with their telemetry off, and talk to 127.0.0.1 only. `npx biome check --write test/data/agents`
 * formats what is kept.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { programs } from './programs.mjs';
import { countResults, runProgram, writeAnswer } from './run-program.mjs';
import { trimRequests } from './trim.mjs';

const answer = { thought: 'Both files are here.', text: 'I read both files.' };
const last = 'The files have one word each.';

const { values: flags, positionals } = parseArgs({
  options: { programs: { type: 'string' }, raw: { type: 'string' }, template: { type: 'string' } },
  allowPositionals: true,
});
const template = flags.template === undefined ? undefined : readFileSync(flags.template, 'utf8');
for (const name of positionals.length === 0 ? Object.keys(programs) : positionals) await record(name, programs[name]);
process.exit();

async function record(name, program) {
  const server = template === undefined ? {} : { chatTemplate: template };
  const { kept, output, calls, home, work, origin } = await runProgram(program, { folder: flags.programs, answerTo: nextAnswer, server });
  if (flags.raw !== undefined) writeFileSync(join(flags.raw, `${name}.json`), JSON.stringify(kept, null, 1));
  for (const { path, status, error } of kept) if (status !== 200) console.log(`${name}: ${path} ${status} ${error}`);
  if (!output.includes(last)) console.log(`${name}: the last answer was not printed: ${output.slice(-2000)}`);
  if (template !== undefined) {
    for (const { path, status, tokens } of kept) console.log(`${name}: ${path} ${status} ${tokens} tokens`);
    return;
  }
  const requests = kept.filter(({ body }) => body !== undefined).map(({ path, body }) => ({ path, body }));
  const recorded = new Date().toISOString().slice(0, 10);
  const title = { program: program.title, package: program.npm ?? program.pypi, version: program.version, recorded };
  const trimmed = trimRequests({ ...title, answer: { ...answer, calls: calls.map(([tool]) => tool) }, requests }, [
    [work, '/home/user/project'],
    [home, '/home/user'],
    [origin, 'http://127.0.0.1:8000'],
    // Codex names its first agent so.
    ['/root', '/agent'],
  ]);
  mkdirSync('test/data/agents', { recursive: true });
  writeFileSync(`test/data/agents/${name}.json`, `${JSON.stringify(trimmed, null, 1)}\n`);
  console.log(`${name}: ${requests.length} requests`);
}

/** The calls first, a text when their results are there, and a title where the program offers no tools. */
function nextAnswer(body, calls) {
  const isLast = (body.tools ?? []).length === 0 || calls.length === 0 || countResults(body) > 0;
  if (!isLast) return writeAnswer(answer, calls, template);
  return template?.includes('<function=') ? `Now I know.\n</think>\n\n${last}` : last;
}

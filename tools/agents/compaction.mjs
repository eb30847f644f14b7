/**
 * Shows what a program does when its conversation outgrows the model's context. Each answer reads a file of 20,000 characters again:
 *
 *     npm run build && node tools/agents/compaction.mjs NAME [--context 120000] [--told 400000] [--turns 8] [--programs DIR] [--env NAME=VALUE]...
 *
 * `--told` is the context that the program's settings give; without it, the true one. Prints each request: its status, the tokens of its prompt, its results of calls, and the error. A token is about a character here.
 */
import { parseArgs } from 'node:util';
import { programs } from './programs.mjs';
import { countResults, itemsOf, runProgram, writeAnswer } from './run-program.mjs';

const { values: flags, positionals } = parseArgs({
  options: {
    context: { type: 'string', default: '120000' },
    told: { type: 'string' },
    turns: { type: 'string', default: '8' },
    programs: { type: 'string' },
    env: { type: 'string', multiple: true, default: [] },
  },
  allowPositionals: true,
});
/** Each command differs, because some programs stop an agent that repeats itself. */
const reads = {
  'claude-code': (command) => ['Bash', { command, description: 'Print big.txt' }],
  codex: (cmd) => ['exec_command', { cmd, max_output_tokens: 20_000 }],
  opencode: (command) => ['bash', { command, description: 'Print big.txt' }],
  'qwen-code': (command) => ['run_shell_command', { command, is_background: false }],
  cline: (command) => ['run_commands', { commands: [command] }],
  continue: (command) => ['Bash', { command }],
  copilot: (command) => ['bash', { command, description: 'Print big.txt' }],
};
const name = positionals[0] ?? 'claude-code';
let turns = 0;
const { kept, output } = await runProgram(programs[name], {
  folder: flags.programs,
  files: { 'big.txt': 'All work and no play.\n'.repeat(950) },
  env: Object.fromEntries(flags.env.map((each) => each.split(/=(.*)/s).slice(0, 2))),
  server: { maxModelLen: Number(flags.context) },
  context: Number(flags.told ?? flags.context),
  timeoutMs: 300_000,
  answerTo(body) {
    if ((body.tools ?? []).length === 0) return 'A summary of the conversation.';
    if (turns++ >= Number(flags.turns)) return 'Done with all.';
    return writeAnswer({ text: 'I read it again.' }, [reads[name](`cat big.txt; echo ${turns}`)]);
  },
});
for (const { status, path, body, tokens, error } of kept) {
  if (body === undefined) continue;
  const facts = `${itemsOf(body).length} messages, ${countResults(body)} results, max_tokens ${body.max_tokens ?? body.max_output_tokens}`;
  console.log(`${status} ${path.split('?')[0]} ${tokens ?? '?'} tokens, ${facts}, ${(body.tools ?? []).length} tools ${error ?? ''}`);
}
console.log(output.slice(-1500));
process.exit();

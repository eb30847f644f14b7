import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { buildCommand, main, run, smallPool } from '../support/cli-process.ts';
import { needs } from '../support/needs.ts';

beforeAll(buildCommand);
const greedy = ['--temperature', '0', '--max-tokens', '24', ...smallPool];

describe('kvasir chat', () => {
  it('answers the lines of a pipe as the same requests of generate, and finds earlier turns in the cache', async () => {
    const question = 'Hello, my name is Barbara.';
    const { code, stdout, stderr } = await run(['chat', ...greedy, '--stats'], `${question}\nTell me a story.\n`);
    expect(code).toBe(0);
    const single = await run(['generate', '--chat', '--prompt', question, ...greedy]);
    expect(stdout.startsWith(single.stdout)).toBe(true);
    const [first, second] = [...stderr.matchAll(/prompt (\d+) tokens, (\d+) cached/g)];
    expect(Number(first![2])).toBe(0);
    expect(Number(second![2])).toBeGreaterThan(0);
  });

  it('refuses flags that are wrong', async () => {
    const { code, stderr } = await run(['chat', '--temperature', 'warm']);
    expect([code, stderr]).toEqual([2, expect.stringContaining('It must be a number')]);
  });
});

/** `script` of util-linux runs a command in a terminal of its own. */
const hasScript = spawnSync('script', ['--version']).stdout?.includes('util-linux') === true;

describe('kvasir chat in a terminal', needs(hasScript, 'no `script` of util-linux'), () => {
  it('edits lines, stops an answer at Ctrl-C, and leaves at Ctrl-D', async () => {
    const command = [process.execPath, main, 'chat', '--ignore-eos', '--temperature', '0', ...smallPool];
    const child = spawn('script', ['-qefc', command.join(' '), '/dev/null']);
    let screen = '';
    child.stdout.on('data', (bytes) => {
      screen += String(bytes);
    });
    const shows = (pattern: RegExp) => vi.waitFor(() => expect(screen).toMatch(pattern), { timeout: 60_000 });
    const exited = once(child, 'exit');
    await shows(
      /A very small storyteller\..* For a model that answers: npx kvasir serve hf:[\s\S]*\/help shows the commands, Ctrl-D leaves\.\r\n[\s\S]*> /,
    );
    child.stdin.write('Tell me a stort\u007fy.\r');
    await shows(/y\.\r\n[\s\S]*[a-z]{3,} [a-z]+ /);
    child.stdin.write('\u0003');
    await shows(/\(stopped\)\r\n[\s\S]*> /);
    child.stdin.write('\u0004');
    expect(await exited).toEqual([0, null]);
  });
});

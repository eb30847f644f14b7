/** `kvasir bench soak` for some seconds, in the long form only: a server with two ranks, tiers with faults, kills and aborts. */
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { text as readText } from 'node:stream/consumers';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { SoakReport } from '../../bench/soak/soak-run.ts';
import { buildCommand, killCommands, start } from '../support/cli-process.ts';
import { temporaryFolder } from '../support/tiny-model.ts';

const folder = temporaryFolder();
beforeAll(buildCommand, 60_000);
afterEach(killCommands);
afterAll(() => folder.remove());

let runs = 0;
function soak(args: readonly string[], environment: Record<string, string> = {}) {
  const path = folder.file(`soak-${runs++}.json`);
  const child = start(['bench', 'soak', ...args, '--out', path], environment);
  const ended = Promise.all([once(child, 'close'), readText(child.stdout)]).then(([[code], stdout]) => ({
    code: code as number | null,
    stdout,
    report: existsSync(path) ? reportOf(path) : undefined,
  }));
  return { child, ended };
}

function reportOf(path: string): SoakReport {
  const { runs } = JSON.parse(readFileSync(path, 'utf8')) as {
    readonly runs: readonly { readonly rows: SoakReport[] }[];
  };
  return runs[0]!.rows[0]!;
}

/** These runs end after a number of requests, on a machine of any speed. */
const requests = (count: number): string[] => ['--minutes', '30', '--requests', String(count), '--samples', '24'];

describe('kvasir bench soak', () => {
  it('ends at Ctrl-C with the report of what was measured so far', async () => {
    const { child, ended } = soak(['--minutes', '30']);
    let log = '';
    await new Promise<void>((resolve) =>
      child.stderr.on('data', (piece) => {
        log += piece;
        if (log.includes('clients for 30 minutes')) resolve();
      }),
    );
    child.kill('SIGINT');
    const { code, report } = await ended;
    expect(code).toBe(130);
    expect(report).toMatchObject({ isInterrupted: true, wrong: 0, lost: 0 });
  });

  it('finds no wrong text and no lost request while ranks are killed', async () => {
    const { code, report, stdout } = await soak(requests(100)).ended;
    expect(stdout).not.toContain('problem:');
    expect(stdout).toContain('growth: not measured');
    expect(code).toBe(0);
    expect(report!.kills).toBeGreaterThan(0);
    expect(report!.equal).toBeGreaterThan(0);
    expect(report!.equal + report!.aborted).toBe(report!.requests);
    expect(report!.samples.server!.length).toBeGreaterThan(8);
  });

  // `growth.test.ts` has smaller leaks, in samples of longer runs.
  it('finds wrong tokens and files that stay open, which are planted in the server', async () => {
    const { code, report } = await soak([...requests(200), '--start-up', '0'], { KVASIR_SOAK_PLANT: 'wrong,files' })
      .ended;
    expect(code).toBe(1);
    expect(report!.wrong).toBeGreaterThan(0);
    const files = report!.growth.server!.find(({ measure }) => measure === 'files');
    expect(files).toMatchObject({ isLeak: true });
    expect(files!.perMillion).toBeGreaterThan(500_000);
    expect(report!.problems.join()).toContain('files of server grew');
  });
});

/** `kvasir bench soak` for some seconds, in the long form only: a server with two ranks, tiers with faults, kills and aborts. */
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { text as readText } from 'node:stream/consumers';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { SoakReport } from '../../bench/soak/soak-run.ts';
import { buildCommand, killCommands, start } from '../support/cli-process.ts';
import { isLongForm } from '../support/long-form.ts';
import { temporaryFolder } from '../support/tiny-model.ts';

const folder = temporaryFolder();
beforeAll(() => (isLongForm ? buildCommand() : undefined), 60_000);
afterEach(killCommands);
afterAll(() => folder.remove());

let runs = 0;
function soak(minutes: number, environment: Record<string, string> = {}) {
  const path = folder.file(`soak-${runs++}.json`);
  const child = start(['bench', 'soak', '--minutes', String(minutes), '--out', path], environment);
  const ended = Promise.all([once(child, 'close'), readText(child.stdout)]).then(([[code], stdout]) => ({
    code: code as number | null,
    stdout,
    report: existsSync(path) ? (JSON.parse(readFileSync(path, 'utf8')) as SoakReport) : undefined,
  }));
  return { child, ended };
}

describe('kvasir bench soak', () => {
  it('ends at Ctrl-C with the report of what was measured so far', async () => {
    if (!isLongForm) return;
    const { child, ended } = soak(30);
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

  it('finds no wrong text, no lost request and no leak while ranks are killed', async () => {
    if (!isLongForm) return;
    const { code, report, stdout } = await soak(0.35).ended;
    expect(stdout).not.toContain('problem:');
    expect(code).toBe(0);
    expect(report!.requests).toBeGreaterThan(0);
    expect(report!.kills).toBeGreaterThan(0);
    expect(report!.equal + report!.aborted).toBe(report!.requests);
  });

  // On a slow machine there are too few samples for planted leaks: `growth.test.ts` has them.
  it('finds wrong tokens that are planted in the server', async () => {
    if (!isLongForm) return;
    const { code, report } = await soak(0.2, { KVASIR_SOAK_PLANT: 'wrong' }).ended;
    expect(code).toBe(1);
    expect(report!.wrong).toBeGreaterThan(0);
  });
});

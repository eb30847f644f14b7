import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeAll, expect, it } from 'vitest';
import { buildCommand, killCommands, serve } from '../support/cli-process.ts';
import { needs } from '../support/needs.ts';
import { childrenOf } from '../support/processes.ts';

beforeAll(buildCommand, 60_000);
afterEach(killCommands);

const isLinux = process.platform === 'linux';

it(
  'a server whose working folder is removed starts threads and worker processes',
  needs(isLinux, 'not Linux'),
  async () => {
    const folder = mkdtempSync(join(tmpdir(), 'kvasir-release-'));
    const server = await serve(['--pipeline-parallel-size', '2'], {}, { cwd: folder });
    const textOf = async (body: object): Promise<string> => {
      const response = await server.complete({ max_tokens: 8, temperature: 0, ...body });
      return JSON.parse(await response.text()).choices?.[0].text;
    };
    const expected = await textOf({});
    rmSync(folder, { recursive: true });
    // Large schemas are compiled on a thread.
    const properties = Object.fromEntries(
      Array.from({ length: 200 }, (_, i) => [`k${i}`, { type: 'string', pattern: '^[a-z]{1,40}$' }]),
    );
    expect(await textOf({ structured_outputs: { json: { type: 'object', properties } } })).toMatch(/^\{/);
    process.kill(childrenOf(server.child.pid!)[0]!, 'SIGKILL');
    expect(await textOf({})).toBe(expected);
    expect(await server.stop()).toContain('It is started again');
    expect(await server.exited).toEqual([0, null]);
  },
);

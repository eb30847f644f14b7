import { writeFileSync } from 'node:fs';
import { afterAll, expect, it } from 'vitest';
import { openEngineWithTier } from '../../test/support/engine-with-tier.ts';
import { runHere } from '../../test/support/run-here.ts';
import { temporaryFolder } from '../../test/support/tiny-model.ts';
import { Server } from '../server/server.ts';

const folder = temporaryFolder();
const closers: (() => unknown)[] = [() => folder.remove()];
afterAll(async () => {
  for (const close of closers.reverse()) await close();
});

it('kvasir tiers gives a running server orders about cached KV, and says what it has done', async () => {
  const engine = await openEngineWithTier({ tier: { type: 'fs', root_dir: folder.file('blocks') } });
  const server = new Server(engine, { version: '0', logLevel: 'silent', adminKey: 'ops' });
  const port = await server.listen(0, '127.0.0.1');
  closers.push(
    () => engine.close(),
    () => server.app.close(),
  );
  const url = `127.0.0.1:${port}`;
  const tiers = (...args: string[]) => runHere(['tiers', ...args, '--url', url, '--api-key', 'ops']);
  const prompt = 'Once upon a time there was a fox that counted mice. '.repeat(4);
  const tokens = engine.tokenize(prompt, { parseSpecial: true });
  const cached = Math.floor(tokens.length / 16) * 16;
  for await (const _ of engine.generate({ prompt: tokens, params: { maxTokens: 1 } }));
  const file = folder.file('prompt.txt');
  writeFileSync(file, prompt);
  await expect
    .poll(async () => (await tiers('lookup', '--prompt-file', file)).stdout, { timeout: 60_000 })
    .toMatch(
      new RegExp(
        `pool +${cached}\\nhost +${cached}\\ndisk +${cached}\\nA request with this prompt of ${tokens.length}`,
      ),
    );
  expect((await tiers('pin', prompt, '--ttl', '60')).stdout).toMatch(/^pin-[0-9a-f]{16} has .* It ends after 60 s/);
  expect((await tiers('unpin', prompt)).stdout).toMatch(/^pin-[0-9a-f]{16} has ended/);
  const all = cached / 16;
  expect((await tiers('pin', prompt, '--place', 'pool', '--place', 'host', '--place', 'disk')).stdout).toMatch(
    new RegExp(
      `^(pin-\\w+) has ${all} of .*\\nhost does not evict ${all} of the ${all} blocks of \\1. It has ${all} of them now.\\ndisk does not evict ${all} `,
    ),
  );
  expect((await tiers('unpin', prompt)).stdout).toMatch(/^pin-[0-9a-f]{16} has ended/);
  engine.cache?.reset();
  expect((await tiers('prefetch', prompt)).stdout).toBe(
    `${cached} of ${tokens.length} tokens are in the pool now; before, 0 were.\n`,
  );
  expect((await tiers('attach', 'second', `disk:${folder.file('second')}:1GiB`)).stdout).toContain(
    'host, disk, second',
  );
  expect((await tiers('detach', 'second')).stdout).toBe('The tiers are host, disk.\n');
  expect((await tiers('clear', 'disk')).stdout).toMatch(/^disk: [1-9]\d* blocks \(.*\) are removed\.\n$/);
  expect((await tiers('remove', prompt, '--place', 'pool')).stdout).toMatch(new RegExp(`^pool: ${cached / 16} blocks`));
  expect(JSON.parse((await tiers('clear', 'host', '--json')).stdout)).toMatchObject({ tier: 'host', failed: 0 });
  expect(await tiers('pin')).toMatchObject({ code: 2, stderr: expect.stringContaining('--prompt-file') as string });
  expect(await tiers('clear', 'tape')).toMatchObject({ code: 1, stderr: expect.stringContaining('tape') as string });
  const refused = await runHere(['tiers', 'clear', 'disk', '--url', url, '--api-key', 'wrong']);
  expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('401') as string });
  expect((await runHere(['tiers', url])).stdout).toContain('disk');
});

import { exec } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { LetterEngine } from '../../test/support/letter-engine.ts';
import { serveHere } from '../../test/support/serve-here.ts';
import { until } from '../../test/support/until.ts';
import { readKvTransferConfig } from '../connector/config.ts';
import { banner } from './banner.ts';

describe('the banner of kvasir serve', () => {
  it('has an address and an example command that works, at a terminal', async () => {
    const server = await serveHere([], {}, { isTTY: true });
    server.loaded.resolve(server.engine);
    await until(() => server.stderr().includes('Press Ctrl-C'));
    const curl = /curl http.*/.exec(server.stderr())![0];
    const { stdout } = await promisify(exec)(`${curl} -sS`);
    expect(JSON.parse(stdout)).toMatchObject({ choices: [{ finish_reason: expect.any(String) as string }] });
    await server.close();
    expect(server.stderr()).not.toMatch(/^\S+Z info {2}serving /m);
  });

  it('says what the file says of itself, at a terminal and in the log', async () => {
    const description = 'A very small storyteller.';
    for (const [isTTY, line] of [
      [true, '  about     A very small storyteller.\n'],
      [false, 'about="A very small storyteller."'],
    ] as const) {
      const server = await serveHere([], { description }, { isTTY });
      server.loaded.resolve(server.engine);
      await until(() => server.stderr().includes(line));
      await server.close();
    }
  });

  it('names the tiers of an OffloadingConnector, also if its calls are to fail', () => {
    const settings = {
      spec_name: 'TieringOffloadingSpec',
      cpu_bytes_to_use: 1 << 20,
      secondary_tiers: [{ type: 'fs', root_dir: '/var/cache/kvasir' }],
      fault_injection: { rules: [{ fault: 'missing' }] },
    };
    const transfer = { kv_connector: 'OffloadingConnector', kv_role: 'kv_both', kv_connector_extra_config: settings };
    const flags = { host: '127.0.0.1', blockSize: 16, pipelineParallelSize: 1 };
    const kvTransferConfig = readKvTransferConfig(transfer);
    const text = banner(
      new LetterEngine(),
      { ...flags, kvTransferConfig } as Parameters<typeof banner>[1],
      8000,
      '1.2.3',
    );
    expect(text.match(/KV tier/g)).toHaveLength(2);
    expect(text).toContain('/var/cache/kvasir');
  });
});

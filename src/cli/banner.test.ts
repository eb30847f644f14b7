import { describe, expect, it } from 'vitest';
import { LetterEngine } from '../../test/support/letter-engine.ts';
import { readKvTransferConfig } from '../connector/config.ts';
import { banner } from './banner.ts';

describe('the banner of kvasir serve', () => {
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

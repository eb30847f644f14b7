/** docs/operations.md against the alerts, the reasons of failed loads, the layout of KV, and the commands that it shows. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { missReasons } from '../src/connector/reasons.ts';
import { F16, Q8_0 } from '../src/ggml/types.ts';
import { wholeModel } from '../src/runner/contract.ts';
import { kvLayout } from '../src/runner/kv-groups.ts';
import { blockBytes } from '../src/runner/kv-memory.ts';
import { runHere } from './support/run-here.ts';

const guide = readFileSync('docs/operations.md', 'utf8');
const runbook = guide.split('\n## Runbook\n')[1]!;

describe('the runbook', () => {
  const rules = readFileSync('deploy/prometheus-rules.yaml', 'utf8');
  const alerts = [...rules.matchAll(/- alert: (\w+)/g)].map(([, name]) => name!);

  it('has a section for each alert, in their order', () => {
    expect(alerts.length).toBeGreaterThan(5);
    expect([...runbook.matchAll(/^### (\w+)$/gm)].map(([, name]) => name!)).toEqual(alerts);
  });

  it('is named by each alert', () => {
    const links = [...rules.matchAll(/^ +runbook: "(.*)"$/gm)].map(([, link]) => link!);
    expect(links).toEqual(alerts.map((name) => `docs/operations.md#${name.toLowerCase()}`));
  });

  it('says what to do for each reason of a failed load', () => {
    const declared = readFileSync('src/connector/reasons.ts', 'utf8');
    const [, others = ''] = /LoadFailureReason =([\s\S]*?);/.exec(declared) ?? [];
    const reasons = [...missReasons, ...[...others.matchAll(/^ +\| '(\w+)'/gm)].map(([, reason]) => reason!)];
    expect(reasons.length).toBeGreaterThan(20);
    const section = runbook.split('### KvasirLoadsFail\n')[1]!.split('\n### ')[0]!;
    expect(reasons.filter((reason) => !section.includes(`\`${reason}\``))).toEqual([]);
  });
});

describe('the sizes', () => {
  const rows = [...guide.matchAll(/^\| [^|]+ \| (\d+) × (\d+) × (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$/gm)].map(
    (row) => row.slice(1).map(Number),
  );

  it('of KV per token are those of the layout', () => {
    expect(rows.length).toBeGreaterThan(5);
    for (const [layerCount = 0, headCountKv = 0, headDim = 0, ...documented] of rows) {
      const layers = { layerCount, headCountKv, headDim };
      const kibOf = (kvType: typeof F16): number =>
        blockBytes(kvLayout(layers, wholeModel(layerCount), { blockSize: 16, kvType })) / 16 / 1024;
      expect(documented).toEqual([kibOf(F16), kibOf(Q8_0), (kibOf(F16) * 32 * 1024) / 1024 ** 2]);
    }
  });

  it('come from a command that exists', async () => {
    const commands = [...guide.matchAll(/^kvasir size (.*)$/gm)].map(([, line]) => line!.split(' '));
    expect(commands.length).toBeGreaterThan(1);
    for (const [, ...flags] of commands) {
      const { code, stderr } = await runHere(['size', 'models/kvasir-demo.gguf', ...flags]);
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    }
  });
});

describe('the guide', () => {
  it('names metrics that exist', () => {
    const metrics = readFileSync('docs/metrics.md', 'utf8');
    const names = [...guide.matchAll(/\b(?:(?:vllm|kvasir):[a-z_]+|(?:http|process)_[a-z_]+)/g)].map(([name]) => name);
    expect(names.length).toBeGreaterThan(10);
    expect(names.filter((name) => !metrics.includes(`| \`${name}\` |`))).toEqual([]);
  });

  it('names flags that exist', async () => {
    const help = (
      await Promise.all(
        ['serve', 'size', 'tiers'].map((name) => runHere([name, name === 'serve' ? '--help-all' : '--help'])),
      )
    ).map(({ stdout }) => stdout);
    // Before, there are flags of other programs.
    const flags = [...guide.split('\n## Sizing\n')[1]!.matchAll(/--[a-z][a-z-]+[a-z]/g)].map(([flag]) => flag);
    expect(flags.length).toBeGreaterThan(20);
    const others = ['--previous'];
    expect(flags.filter((flag) => !others.includes(flag) && !help.some((text) => text.includes(flag)))).toEqual([]);
  });
});

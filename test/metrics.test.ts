/** docs/metrics.md, the dashboard and the alerts against the metrics of a live server. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { beforeAll, describe, expect, it } from 'vitest';
import { saltTagOf } from '../src/connector/salt-tag.ts';
import { headerBytes } from '../src/connector/tier/block-header.ts';
import { Server } from '../src/server/server.ts';
import { openEngineWithTier } from './support/engine-with-tier.ts';
import { needs } from './support/needs.ts';
import { temporaryFolder } from './support/tiny-model.ts';

interface Metric {
  readonly type: string;
  readonly help: string;
}

/** The metrics of a server with host memory and a disk below it, after a request. */
async function liveMetrics(): Promise<Map<string, Metric>> {
  const folder = temporaryFolder();
  const engine = await openEngineWithTier({ tier: { type: 'fs', root_dir: folder.file('tier') } });
  const server = new Server(engine, { version: '0.0.0', logLevel: 'silent' });
  try {
    const port = await server.listen(0, '127.0.0.1');
    for await (const _ of engine.generate({
      prompt: 'Once upon a time',
      cacheSalt: 'tenant-a',
      params: { maxTokens: 20 },
    }));
    const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    // Without --metrics-by-salt.
    expect(text).not.toMatch(/^kvasir:tier_salt_\w+\{/m);
    const types = new Map([...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => [name!, type!]));
    const helps = [...text.matchAll(/^# HELP (\S+) (.*)$/gm)];
    return new Map(helps.map(([, name, help]) => [name!, { type: types.get(name!)!, help: help! }]));
  } finally {
    await server.app.close();
    await engine.close();
    folder.remove();
  }
}

interface Documented extends Metric {
  readonly name: string;
  readonly labels: readonly string[];
}

/** The rows of the tables in docs/metrics.md. */
function documentedMetrics(): Documented[] {
  const rows = readFileSync('docs/metrics.md', 'utf8').matchAll(/^\| `(\S+)` \| (\w+) \| (.*?) \| (.*) \|$/gm);
  return [...rows].map(([, name, type, labels, help]) => ({
    name: name!,
    type: type!,
    labels: [...labels!.matchAll(/`(\w+)`/g)].map(([, label]) => label!),
    help: help!,
  }));
}

/** Labels that every metric of the engine has, that Prometheus adds, and that histograms have. */
const labelsOfAll = ['model_name', 'engine', 'instance', 'job', 'le'];

/** The names and labels of a query that no metric in `documented` has. `up` is Prometheus' own. */
function unknownIn(query: string, documented: readonly Documented[]): string[] {
  const known = new Map(documented.map((metric) => [metric.name, metric]));
  const unquoted = query.replaceAll(/"[^"]*"/g, '""');
  const names = [...unquoted.matchAll(/\b(?:(?:vllm|kvasir):\w+|http_\w+|process_\w+)/g)].map(([name]) => name);
  const metrics = names.map((name) => known.get(name) ?? known.get(name.replace(/_(?:bucket|sum|count)$/, '')));
  const labels = [
    ...[...unquoted.matchAll(/\{([^}]*)\}/g)].flatMap(([, selectors]) => [...selectors!.matchAll(/(\w+)[=!]/g)]),
    ...[...unquoted.matchAll(/by \(([^)]*)\)/g)].flatMap(([, list]) => [...list!.matchAll(/(\w+)/g)]),
  ].map(([, label]) => label!);
  const possible = new Set([...labelsOfAll, ...metrics.flatMap((metric) => metric?.labels ?? [])]);
  return [
    ...names.filter((_, i) => metrics[i] === undefined),
    ...labels.filter((label) => !possible.has(label)),
    ...(names.length === 0 && !unquoted.startsWith('up') ? [`no metric in ${query}`] : []),
  ];
}

it('metrics by salt have the tags of salts, and not the salts', async () => {
  const folder = temporaryFolder();
  const tier = { type: 'fs', root_dir: folder.file('tier') };
  const engine = await openEngineWithTier({ tier, settings: { metrics_by_salt: true } });
  const server = new Server(engine, { version: '0.0.0', logLevel: 'silent' });
  try {
    const origin = `http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`;
    const prompt = 'Once upon a time there was a fox that counted mice. '.repeat(4);
    const generate = async (cacheSalt?: string) => {
      const request = { prompt, params: { maxTokens: 4, temperature: 0 } };
      for await (const _ of engine.generate(cacheSalt === undefined ? request : { ...request, cacheSalt }));
    };
    for (const salt of ['tenant-a', 'tenant-b', undefined]) await generate(salt);
    const rowsOf = async (name: string): Promise<Record<string, number>> => {
      // Reports come with steps.
      await generate();
      const text = await (await fetch(`${origin}/metrics`)).text();
      expect(text).not.toMatch(/tenant-/);
      const rows = text.matchAll(new RegExp(`^kvasir:tier_${name}\\{(.*?),model_name.*\\} (\\d+)$`, 'gm'));
      return Object.fromEntries([...rows].map(([, labels, value]) => [labels!, Number(value)]));
    };
    const blocks = Math.floor(engine.tokenize(prompt, { parseSpecial: true }).length / 16);
    const rows = ['host', 'disk'].flatMap((name) =>
      ['tenant-a', 'tenant-b'].map((salt) => `tier="${name}",salt="${saltTagOf(salt)}"`),
    );
    const expected = Object.fromEntries(rows.map((row) => [row, blocks]));
    await expect.poll(() => rowsOf('salt_blocks'), { timeout: 60_000 }).toEqual(expected);
    const blockBytes = engine.cache!.shape.blockBytes + headerBytes;
    expect(await rowsOf('salt_bytes')).toEqual(Object.fromEntries(rows.map((row) => [row, blocks * blockBytes])));
    const { tiers } = (await (await fetch(`${origin}/tiers`)).json()) as { tiers: readonly object[] };
    expect(tiers.map((shown) => 'salts' in shown)).toEqual([true, true]);
  } finally {
    await server.app.close();
    await engine.close();
    folder.remove();
  }
});

describe('the metrics of a server', () => {
  let live: Map<string, Metric>;
  const documented = documentedMetrics();
  beforeAll(async () => {
    live = await liveMetrics();
  });

  it('are all in docs/metrics.md, with their types', () => {
    const asDocumented = documented.map(({ name, type, help }) => [name, { type, help }] as const);
    expect(Object.fromEntries(asDocumented)).toEqual(Object.fromEntries(live));
    expect(documented).toHaveLength(live.size);
  });

  it('include those of every query of the dashboard', () => {
    const dashboard = JSON.parse(readFileSync('deploy/grafana-dashboard.json', 'utf8')) as {
      readonly panels: readonly { readonly targets?: readonly { readonly expr: string }[] }[];
    };
    const queries = dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
    expect(queries.length).toBeGreaterThan(20);
    expect(queries.flatMap((query) => unknownIn(query, documented))).toEqual([]);
  });

  it('include those of every alert', () => {
    const rules = readFileSync('deploy/prometheus-rules.yaml', 'utf8');
    const queries = [...rules.matchAll(/^ +expr: (['"])(.*)\1$/gm)].map(([, , query]) => query!);
    expect(queries).toHaveLength([...rules.matchAll(/- alert:/g)].length);
    expect(queries.flatMap((query) => unknownIn(query, documented))).toEqual([]);
  });

  it('do not include a misspelt name or a label of another metric', () => {
    expect(unknownIn('rate(vllm:prompt_token_total[5m])', documented)).toEqual(['vllm:prompt_token_total']);
    expect(unknownIn('sum by (tier) (vllm:prompt_tokens_total{source="x"})', documented)).toEqual(['source', 'tier']);
  });
});

const promtool = '/usr/bin/promtool';
describe('the alerts', needs(existsSync(promtool), `no ${promtool}`), () => {
  it('are valid for promtool', () => {
    const said = execFileSync(promtool, ['check', 'rules', 'deploy/prometheus-rules.yaml'], { encoding: 'utf8' });
    expect(said).toContain('SUCCESS: 9 rules found');
  });
});

import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { readKvTransferConfig } from '../src/connector/config.ts';
import { faultKinds } from '../src/connector/fault/fault-rules.ts';
import { missReasons } from '../src/connector/reasons.ts';
import { createConnector } from '../src/connector/registry.ts';

/** Checks that the guide names all settings and faults that exist, and no others. */
const byText = (a: string | undefined, b: string | undefined): number => ((a ?? '') < (b ?? '') ? -1 : 1);
const guide = readFileSync('docs/kv-transfer.md', 'utf8');
const firstCells = (heading: string): string[] => {
  const section = guide
    .slice(guide.indexOf(`\n${heading}\n`))
    .split(/\n#/, 2)
    .join('');
  return [...section.matchAll(/^\| ((?:`[^`|]+`(?:, )?)+) \|/gm)].flatMap(([, cell]) =>
    [...cell!.matchAll(/`(\w+)/g)].map(([, name]) => name!),
  );
};
/** The error for an unknown name lists all known names. */
const knownIn = async (extra: object): Promise<string[]> => {
  const config = { kvConnector: 'SharedStorageConnector', kvRole: 'kv_both', kvConnectorExtraConfig: { ...extra } };
  const error: unknown = await createConnector(readKvTransferConfig(config)).catch((cause: unknown) => cause);
  return /\(known: ([^)]*)\)/.exec(String(error))![1]!.split(', ');
};

it('lists the settings of SharedStorageConnector', async () => {
  const known = await knownIn({ shared_storage_path: 'x', nonsense: 1 });
  expect(firstCells('### Settings of SharedStorageConnector').sort(byText)).toEqual(known.sort(byText));
});

it('lists the fields of a fault, and the faults', async () => {
  const known = await knownIn({
    shared_storage_path: 'x',
    fault_injection: { rules: [{ fault: 'bitFlip', nonsense: 1 }] },
  });
  expect(firstCells('## Fault injection').sort(byText)).toEqual(known.sort(byText));
  const row = /^\| `fault` \| (.*) \|$/m.exec(guide)![1]!;
  expect([...row.matchAll(/`(\w+)`/g)].map(([, name]) => name).sort(byText)).toEqual([...faultKinds].sort(byText));
});

it('lists the fields of the configuration, and its example is valid', () => {
  const config = Object.fromEntries(firstCells('## Fields').map((name) => [name, exampleOf(name)]));
  expect(Object.keys(readKvTransferConfig(config as never))).toHaveLength(8);
  const json = /^KV='(.*)'$/m.exec(guide)![1]!;
  expect(readKvTransferConfig(JSON.parse(json))).toMatchObject({ kvConnector: 'SharedStorageConnector' });
});

it('names only reasons that exist', () => {
  const named = /miss with a reason: (.*?), \.\.\./.exec(guide)![1]!;
  for (const [, reason] of named.matchAll(/`(\w+)`/g)) expect(missReasons).toContain(reason);
});

const examples: Readonly<Record<string, unknown>> = {
  kv_role: 'kv_both',
  kv_connector_extra_config: {},
  kv_load_failure_policy: 'fail',
  kv_transfer_encrypt: false,
};
const exampleOf = (name: string): unknown => examples[name] ?? 'x';

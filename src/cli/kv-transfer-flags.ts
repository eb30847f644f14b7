import type { Command } from 'commander';
import { type DottedFlag, parseKvTransferConfig, readKvTransferConfig } from '../connector/config.ts';
import type { KvTransferConfig } from '../connector/connector.ts';

/** Flags for the settings of the tiers, their options and the fields that they set. */
const offloadingFlags = [
  ['--kv-load-policy', 'kvLoadPolicy', 'kv_load_policy'],
  ['--metrics-by-salt', 'metricsBySalt', 'metrics_by_salt'],
] as const;

/**
 * Runs before a command's action: makes one `KvTransferConfig` of `--kv-transfer-config` and the dotted flags, or of
 * `--kv-offloading-size` and `--kv-tier`, and adds `--kv-transfer-key-file` and `--kv-transfer-encrypt`. Commander does not get the dotted flags, because it requires the name of each
 * option.
 * @throws KvasirError that names the wrong field.
 */
export function readKvTransferFlags(command: Command, dotted: readonly DottedFlag[]): void {
  const name = 'kvTransferConfig';
  if (command.options.some((option) => option.attributeName() === name)) {
    const json = command.getOptionValue(name) as string | undefined;
    const given = parseKvTransferConfig(json, dotted);
    const offloading = offloadingConfig(command);
    for (const [flag, option, field] of offloadingFlags)
      if (offloading === undefined && command.getOptionValue(option) !== undefined)
        command.error(
          `error: ${flag} needs --kv-tier or --kv-offloading-size; in --kv-transfer-config, ${field} is a field of kv_connector_extra_config`,
        );
    if (given !== undefined && offloading !== undefined)
      command.error('error: --kv-tier and --kv-offloading-size cannot be combined with --kv-transfer-config');
    command.setOptionValue(name, withEncryption(command, withKeyFile(command, given ?? offloading)));
    return;
  }
  const [first] = dotted;
  if (first !== undefined) command.error(`error: unknown option '--kv-transfer-config.${first.path.join('.')}'`);
}

function withKeyFile(command: Command, config: KvTransferConfig | undefined): KvTransferConfig | undefined {
  const kvTransferKeyFile = command.getOptionValue('kvTransferKeyFile') as string | undefined;
  if (kvTransferKeyFile === undefined) return config;
  if (kvTransferKeyFile === '') command.error('error: --kv-transfer-key-file needs the path of a file');
  if (config === undefined)
    command.error(
      'error: --kv-transfer-key-file needs --kv-tier or --kv-transfer-config: without them, no block leaves the process',
    );
  return { ...config, kvTransferKeyFile };
}

function withEncryption(command: Command, config: KvTransferConfig | undefined): KvTransferConfig | undefined {
  if (command.getOptionValue('kvTransferEncrypt') !== true) return config;
  if (config?.kvTransferKeyFile === undefined)
    command.error('error: --kv-transfer-encrypt needs --kv-transfer-key-file, which has the keys');
  return { ...config, kvTransferEncrypt: true };
}

/** `--kv-offloading-size 8` is short for `--kv-tier host:8GiB`. */
function offloadingConfig(command: Command): KvTransferConfig | undefined {
  const tiers = (command.getOptionValue('kvTier') ?? []) as readonly string[];
  const gibibytes = command.getOptionValue('kvOffloadingSize') as number | undefined;
  if (gibibytes === undefined && tiers.length === 0) return undefined;
  if (gibibytes !== undefined && tiers.some((tier) => tier.startsWith('host:')))
    command.error(
      'error: --kv-offloading-size is the size of the host tier, which --kv-tier names too: give one of them',
    );
  const host = gibibytes === undefined ? [] : [`host:${Math.round(gibibytes * 1024 ** 3)}`];
  const settings = offloadingFlags.map(
    ([, option, field]) => [field, command.getOptionValue(option) as unknown] as const,
  );
  return readKvTransferConfig({
    kv_connector: 'OffloadingConnector',
    kv_role: 'kv_both',
    kv_connector_extra_config: {
      tiers: [...host, ...tiers],
      ...Object.fromEntries(settings.filter(([, value]) => value !== undefined)),
    },
  });
}

import type { Command } from 'commander';
import { type DottedFlag, parseKvTransferConfig } from '../connector/config.ts';

/**
 * Runs before a command's action: makes one `KvTransferConfig` of `--kv-transfer-config` and the dotted flags.
 * Commander does not get the dotted flags, because it requires the name of each option.
 * @throws KvasirError that names the wrong field.
 */
export function readKvTransferFlags(command: Command, dotted: readonly DottedFlag[]): void {
  const name = 'kvTransferConfig';
  if (command.options.some((option) => option.attributeName() === name)) {
    const json = command.getOptionValue(name) as string | undefined;
    command.setOptionValue(name, parseKvTransferConfig(json, dotted));
    return;
  }
  const [first] = dotted;
  if (first !== undefined) command.error(`error: unknown option '--kv-transfer-config.${first.path.join('.')}'`);
}

import type { Command } from 'commander';
import { type DottedFlag, parseKvTransferConfig } from '../connector/config.ts';

/**
 * Before a command's action: `--kv-transfer-config` (text so far) and the dotted flags, which commander never sees because
 * it wants to know each option by name, become one `KvTransferConfig` in the command's flags.
 * @throws KvasirError that names the field which is wrong.
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

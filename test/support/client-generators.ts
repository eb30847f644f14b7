/** Programs of others that write clients from `/openapi.json`, and redocly's linter. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { defaultCacheFolder } from '../../src/base/cache-folder.ts';

/** Of `.ci/install-client-generators`, which installs what `tools/compat/generated-clients` names. */
const version = 1;
export const generatorsFolder = join(defaultCacheFolder() ?? '', `client-generators-${version}`);

export const hasGenerators = existsSync(join(generatorsFolder, 'complete'));
export const noGenerators = 'no programs that write clients: run .ci/install-client-generators';
export const hasGoGenerator = existsSync(join(generatorsFolder, 'go', 'oapi-codegen'));

/** Runs a program in a folder. @returns its output; rejects with it if the program fails */
export function runIn(
  cwd: string,
  command: string,
  args: readonly string[],
  variables: Readonly<Record<string, string>> = {},
): Promise<string> {
  return new Promise((resolve, reject) => {
    const env = { ...process.env, NO_COLOR: '1', REDOCLY_TELEMETRY: 'off', ...variables };
    execFile(command, args, { cwd, env, maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) => {
      if (error === null) resolve(stdout);
      else reject(new Error(`${command} ${args.join(' ')}: ${stdout}${stderr}`));
    });
  });
}

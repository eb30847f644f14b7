/** Programs of others that judge the HTTP API. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { defaultCacheFolder } from '../../src/base/cache-folder.ts';

/** Of `.ci/install-judges`, which installs `tools/compat/requirements/judges.txt` and the tests of llama.cpp's server. */
const version = 3;
export const judgesFolder = join(defaultCacheFolder() ?? '', `judges-${version}`);

export const hasJudges = existsSync(join(judgesFolder, 'complete'));
export const noJudges = 'no llm-comply, schemathesis, canitoolcall and tests of llama-server: run .ci/install-judges';

export interface Verdict {
  readonly exitCode: number;
  readonly output: string;
}

export function runJudge(
  name: string,
  args: readonly string[],
  cwd: string,
  variables: Readonly<Record<string, string>> = {},
): Promise<Verdict> {
  return new Promise((resolve) => {
    const options = { cwd, maxBuffer: 64 * 1024 * 1024, env: { ...process.env, NO_COLOR: '1', ...variables } };
    execFile(join(judgesFolder, 'bin', name), args, options, (error, stdout, stderr) =>
      resolve({ exitCode: error === null ? 0 : Number(error.code ?? 1), output: stdout + stderr }),
    );
  });
}

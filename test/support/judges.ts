/** Programs of others that judge the HTTP API. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { defaultCacheFolder } from '../../src/base/cache-folder.ts';

/** Of `.ci/install-judges`, which installs `tools/compat/requirements/judges.txt`. */
const version = 1;
const folder = join(defaultCacheFolder() ?? '', `judges-${version}`);

export const hasJudges = existsSync(join(folder, 'complete'));
export const noJudges = 'no llm-comply and schemathesis: run .ci/install-judges';

export interface Verdict {
  readonly exitCode: number;
  readonly output: string;
}

export function runJudge(name: string, args: readonly string[], cwd: string): Promise<Verdict> {
  return new Promise((resolve) => {
    const options = { cwd, maxBuffer: 64 * 1024 * 1024, env: { ...process.env, NO_COLOR: '1' } };
    execFile(join(folder, 'bin', name), args, options, (error, stdout, stderr) =>
      resolve({ exitCode: error === null ? 0 : Number(error.code ?? 1), output: stdout + stderr }),
    );
  });
}

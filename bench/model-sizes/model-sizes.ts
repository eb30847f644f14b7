/**
 * Writes the memory and the storage that ten common models need to deploy/kubernetes/sizes.json and docs/operations.md: what `kvasir size`
 * says of files with their shapes, whose weights are zeros that take no space.
 *
 *   npm run build && node dist/bench/model-sizes/model-sizes.js
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { writeTinyHeader } from '../make-model/model-maker.ts';
import { popularModels } from './popular-models.ts';

const flags = ['--max-model-len', '8K', '--max-num-seqs', '8'];
const sizesPath = 'deploy/kubernetes/sizes.json';
const GIB = 1024 ** 3;

/** The fields of `kvasir size --json` that are used here. */
interface Size {
  readonly fileBytes: number;
  readonly weightBytes: number;
  readonly processBytes: number;
  readonly storedBytesPerToken: number;
  readonly maxModelLen: number;
  readonly maxNumSeqs: number;
  readonly pools: readonly { readonly sequences: number; readonly tokens: number; readonly bytes: number }[];
}

/** The sizes of one model; bytes, and quantities of Kubernetes. */
export interface ModelSizes {
  readonly model: string;
  readonly type: string;
  readonly fileBytes: number;
  readonly storedBytesPerToken: number;
  /** For `--kv-cache-memory`. */
  readonly kvCacheBytes: number;
  /** For the memory of requests and limits. */
  readonly memory: string;
  /** Of a volume with this model alone. */
  readonly storage: string;
}

export const tableOf = (sizes: readonly ModelSizes[]): string =>
  [
    '| model | file | KiB per token in a tier | `--kv-cache-memory` | memory: requests and limits | storage of the model |',
    '|---|---|---|---|---|---|',
    ...sizes.map(({ model, type, fileBytes, storedBytesPerToken, kvCacheBytes, memory, storage }) => {
      const kib = storedBytesPerToken / 1024;
      return `| ${model} | ${type}, ${gib(fileBytes)} | ${kib} | ${gib(kvCacheBytes)} | ${memory} | ${storage} |`;
    }),
  ].join('\n');

const gib = (bytes: number): string => `${(bytes / GIB).toFixed(1)} GiB`;
const wholeGib = (bytes: number): string => `${Math.ceil(bytes / GIB)}Gi`;

/** With all sequences of `flags` at their full length. */
export async function sizesOf(model: (typeof popularModels)[number], folder: string): Promise<ModelSizes> {
  const { name, ...options } = model;
  const path = join(folder, `${name}.gguf`);
  await writeTinyHeader(path, options);
  const args = [resolve('dist/bundle/src/main.js'), 'size', path, ...flags, '--device', 'cpu', '--json'];
  const size = JSON.parse(execFileSync(process.execPath, args, { encoding: 'utf8' })) as Size;
  rmSync(path);
  const pool = size.pools.find(
    ({ sequences, tokens }) => sequences === size.maxNumSeqs && tokens === size.maxModelLen,
  )!;
  return {
    model: name,
    type: options.type,
    fileBytes: size.fileBytes,
    storedBytesPerToken: size.storedBytesPerToken,
    kvCacheBytes: pool.bytes,
    memory: wholeGib(size.weightBytes + size.processBytes + pool.bytes),
    storage: wholeGib(1.1 * size.fileBytes),
  };
}

async function writeSizes(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'kvasir-sizes-'));
  const sizes: ModelSizes[] = [];
  try {
    for (const model of popularModels) sizes.push(await sizesOf(model, folder));
  } finally {
    rmSync(folder, { recursive: true });
  }
  writeFileSync(sizesPath, `${JSON.stringify(sizes, undefined, 2)}\n`);
  const path = 'docs/operations.md';
  const table = /(?<=<!-- sizes: begin -->\n\n)[\s\S]*?(?=\n\n<!-- sizes: end -->)/;
  writeFileSync(path, readFileSync(path, 'utf8').replace(table, tableOf(sizes)));
}

if (process.argv[1]?.endsWith('model-sizes.js') === true) await writeSizes();

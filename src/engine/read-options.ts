import { byName } from '../base/by-name.ts';
import { describeValue } from '../base/describe-value.ts';
import type { FieldReader } from '../base/field-reader.ts';
import { parameterReader } from '../core/parameter-reader.ts';
import { poolingChoices } from '../core/request.ts';

type Read = (reader: FieldReader, name: string) => unknown;

const atLeast =
  (min: number): Read =>
  (reader, name) =>
    reader.integer(name, { min });
const choice =
  (...choices: readonly string[]): Read =>
  (reader, name) =>
    reader.choice(name, choices);
const callback: Read = (reader, name) => {
  const value = reader.raw(name);
  if (value !== undefined && typeof value !== 'function') throw reader.invalid(name, 'a function');
};
/** Another function checks it. */
const unchecked: Read = (reader, name) => reader.raw(name);

/** All options of an engine. TypeScript checks callers in TypeScript; these are for callers in JavaScript. */
const readers: Readonly<Record<string, Read>> = byName({
  model: (reader, name) =>
    reader.required(name, reader.text(name), 'the path of a GGUF file, or a name like hf:owner/repository:Q8_0'),
  servedModelName: readNames,
  maxModelLen: unchecked,
  maxNumSeqs: atLeast(1),
  maxNumBatchedTokens: atLeast(1),
  targetInterTokenLatency: (reader, name) => {
    if (reader.raw(name) !== 'auto') reader.number(name, { min: 0 });
  },
  blockSize: atLeast(1),
  stateCheckpointTokens: atLeast(1),
  kvCacheMemory: (reader, name) => reader.number(name, { above: 0 }),
  skipMemoryCheck: (reader, name) => reader.boolean(name),
  mmap: (reader, name) => reader.boolean(name),
  kvCacheDtype: choice('f16', 'q8_0'),
  threads: atLeast(1),
  cpus: (reader, name) =>
    reader.list(name, (core, each) => {
      if (Number.isSafeInteger(core) && (core as number) >= 0) return;
      throw reader.invalid(each, 'the number of a core', describeValue(core));
    }),
  numerics: choice('exact', 'fast'),
  attention: choice('auto', 'native', 'gather'),
  device: choice('auto', 'cpu', 'gpu'),
  gpuLayers: unchecked,
  enablePrefixCaching: (reader, name) => reader.boolean(name),
  kvPinShare: (reader, name) => reader.number(name, { min: 0, max: 1 }),
  schedulingPolicy: choice('fcfs', 'priority'),
  maxWaiting: atLeast(0),
  chatTemplate: (reader, name) => reader.string(name),
  pooling: choice(...poolingChoices),
  loraModules: unchecked,
  maxLoras: atLeast(1),
  maxLoraRank: atLeast(1),
  seed: atLeast(0),
  kvTransferConfig: unchecked,
  speculativeConfig: unchecked,
  kvEventsConfig: (reader, name) => reader.json(name),
  pipelineParallelSize: (reader, name) => reader.number(name),
  distributedExecutorBackend: choice('uni', 'mp'),
  workerTimeout: (reader, name) => reader.number(name, { min: 0 }),
  onEvent: callback,
  onDownloadProgress: callback,
  onProgress: callback,
  onDigestProgress: callback,
});

/** @throws invalidParameter */
export function checkOptionTypes(options: unknown): void {
  const reader = parameterReader(options, 'options');
  for (const [name, read] of Object.entries(readers)) read(reader, name);
  reader.finish();
}

function readNames(reader: FieldReader, name: string): void {
  const value = reader.raw(name);
  const names = Array.isArray(value) ? value : [value ?? 'default'];
  if (names.every((each) => typeof each === 'string' && each !== '')) return;
  throw reader.invalid(name, 'a name, or a list of names');
}

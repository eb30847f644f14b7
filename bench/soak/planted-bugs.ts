import { subscribe } from 'node:diagnostics_channel';
import { EventEmitter } from 'node:events';
import { openSync } from 'node:fs';
import { type IncomingMessage, ServerResponse } from 'node:http';
import koffi from 'koffi';

/**
 * Bugs of the server that the soak must find. `KVASIR_SOAK_PLANT` names them, with commas.
 *
 *   heap       1 KiB of JavaScript objects for each request is kept
 *   native     1 KiB of native memory for each request is not freed
 *   mapping    a page that is mapped for each request is not unmapped
 *   listener   a listener for each request is not removed
 *   file       a file for every 100 aborted requests is not closed
 *   files      a file for each request is not closed, for short tests
 *   wrong      one token in twenty is another one
 */
export const plantedBugs = ['heap', 'native', 'mapping', 'listener', 'file', 'files', 'wrong'] as const;
export type PlantedBug = (typeof plantedBugs)[number];

const kept: unknown[] = [];
/** Node does not warn of its listeners. */
const neverEmits = new EventEmitter().setMaxListeners(0);

export function plant(bugs: readonly PlantedBug[]): void {
  if (bugs.includes('wrong')) plantWrongTokens();
  const allocate = bugs.includes('native') ? cFunctionMalloc() : undefined;
  const mapPage = bugs.includes('mapping') ? pageMapper() : undefined;
  let aborts = 0;
  subscribe('http.server.request.start', (message) => {
    const { request, response } = message as { readonly request: IncomingMessage; readonly response: ServerResponse };
    if (bugs.includes('heap')) kept.push(Array.from({ length: 128 }, (_, i) => i + 0.5));
    allocate?.(1024);
    mapPage?.();
    if (bugs.includes('listener')) neverEmits.on('event', () => bugs.length);
    if (bugs.includes('files')) kept.push(openSync('/dev/null', 'r'));
    response.once('close', () => {
      if (response.writableFinished || !request.complete || ++aborts % 100 !== 0) return;
      if (bugs.includes('file')) kept.push(openSync('/dev/null', 'r'));
    });
  });
}

const cFunctionMalloc = () => koffi.load('libc.so.6').func('void *malloc(size_t)') as (bytes: number) => unknown;

/** The memory is not of `malloc`, and it is used. */
function pageMapper(): () => void {
  const library = koffi.load('libc.so.6');
  const map = library.func('void *mmap(void *, size_t, int, int, int, int64_t)') as (...args: unknown[]) => unknown;
  const fill = library.func('void *memset(void *, int, size_t)') as (...args: unknown[]) => unknown;
  const [readAndWrite, isPrivateAndAnonymous] = [3, 0x22];
  return () => void fill(map(null, 4096, readAndWrite, isPrivateAndAnonymous, -1, 0), 1, 4096);
}

/** Changes one token in twenty. */
function plantWrongTokens(): void {
  const { write } = ServerResponse.prototype;
  let count = 0;
  const changed = (chunk: unknown): unknown => {
    if (typeof chunk !== 'string' || !chunk.includes('"token_ids":[') || ++count % 20 !== 0) return chunk;
    return chunk.replace(/"token_ids":\[(\d+)/, (_, token: string) => `"token_ids":[${Number(token) ^ 1}`);
  };
  ServerResponse.prototype.write = function (this: ServerResponse, chunk: unknown, ...rest: unknown[]) {
    return Reflect.apply(write, this, [changed(chunk), ...rest]) as boolean;
  };
}

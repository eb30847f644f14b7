import { defineError } from '../src/base/errors.ts';

export const contextNotCached = defineError(
  'KVASIR_BENCH_CONTEXT_NOT_CACHED',
  'The KV pool is too small to keep a context of {depth} tokens. Use a larger --kv-cache-memory.',
  500,
);
export const notAllAtOnce = defineError(
  'KVASIR_BENCH_NOT_ALL_AT_ONCE',
  'At no time did {batch} requests generate together. Start the server with at least {batch} slots, or use a larger --gen-len.',
  500,
);
export const poolTooSmall = defineError(
  'KVASIR_BENCH_POOL_TOO_SMALL',
  'The requests and their prompts need {needed} blocks, the pool has {blocks}. Use a larger --blocks, or shorter prompts or fewer steps.',
  400,
);
export const pinningUnavailable = defineError(
  'KVASIR_BENCH_PINNING_UNAVAILABLE',
  'The bench cannot pin processes to cores: {reason}. Install util-linux, and run the bench on Linux.',
  500,
);
export const interrupted = defineError('KVASIR_BENCH_INTERRUPTED', 'Interrupted.', 500);
export const turnTooShort = defineError(
  'KVASIR_BENCH_TURN_TOO_SHORT',
  'A request ended after {got} of {wanted} tokens. Measure shorter contexts, or give the server a larger context length.',
  500,
);
export const peerUnreachable = defineError(
  'KVASIR_BENCH_PEER_UNREACHABLE',
  'The server at {url} does not answer: {reason}. Start the server, or correct the URL.',
  502,
);
export const peerRefused = defineError(
  'KVASIR_BENCH_PEER_REFUSED',
  'The server answered {status} to {path}: {body}',
  502,
);
export const peerPromptDiffers = defineError(
  'KVASIR_BENCH_PEER_PROMPT_DIFFERS',
  'The server has read {counted} tokens where {sent} were sent: it serves another model, or adds tokens to prompts. Serve the same model file there.',
  502,
);
export const peerNotInstalled = defineError(
  'KVASIR_BENCH_PEER_NOT_INSTALLED',
  'The Python {python} has no package {peer}: {reason}. Install it in a virtual environment as docs/performance.md says, and name its Python with --peer-python.',
  500,
);
export const transferFailed = defineError(
  'KVASIR_BENCH_TRANSFER_FAILED',
  'A transfer to or from {tier} failed: {reason}. Correct the cause and run the bench again.',
  500,
);
export const tierNotMeasured = defineError(
  'KVASIR_BENCH_TIER_NOT_MEASURED',
  'The bench cannot measure --kv-tier {tier}. Host memory is always measured. Name another tier, such as disk:/var/cache/kvasir.',
  400,
);
export const prefixNotSaved = defineError(
  'KVASIR_BENCH_PREFIX_NOT_SAVED',
  'Only {saved} of {wanted} blocks were stored within a minute. Use a faster disk, or fewer tokens.',
  500,
);
export const prefixNotLoaded = defineError(
  'KVASIR_BENCH_PREFIX_NOT_LOADED',
  'The prefix was not loaded: the tier promised {promised} tokens, and {failed} blocks failed. Use a tier that loads them before the deadline, and that no other process changes.',
  500,
);
export const resultUnwritable = defineError(
  'KVASIR_BENCH_RESULT_UNWRITABLE',
  'The result cannot be written to {path}: {reason}. Correct the permissions, or name another file with --out.',
  500,
);

/** Upper bounds in seconds, as in vLLM: of whole requests, of first tokens, and between tokens. */
export const requestSeconds = [
  0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
];
export const firstTokenSeconds = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
];
export const interTokenSeconds = [
  0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
];
/** Of the parts of a step. Planning takes microseconds, kernels take up to seconds. */
export const stepSeconds = [
  1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10,
];
/** Of the time in which a stream has no token because KV was lost. */
export const recoverySeconds = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100];
/** Tokens of a step. */
export const stepTokens = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384];
export const preemptionCounts = [1, 2, 3, 4, 5, 10, 20];
export const completionCounts = [1, 2, 5, 10, 20];

/** 1, 2, 5, 10, 20, ... up to `max`. */
export function tokenCounts(max: number): number[] {
  const bounds: number[] = [];
  for (let power = 1; power <= max; power *= 10)
    for (const digit of [1, 2, 5]) if (digit * power <= max) bounds.push(digit * power);
  return bounds;
}

import { createHash } from 'node:crypto';
import type { AttentionTemperature } from '../ggml/model-config.ts';

/** The factors of the queries at these positions, with the floats of llama.cpp. */
export const temperaturesOf = (positions: Int32Array, { scale, interval }: AttentionTemperature): Float32Array =>
  Float32Array.from(positions, (position) => Math.log(Math.floor(Math.fround(position / interval)) + 1) * scale + 1);

/** A digest of all factors of a context. Logarithms are those of this machine, and decide the bits of KV. */
export function temperatureDigest(temperature: AttentionTemperature, contextLength: number): string {
  const { interval } = temperature;
  const positions = Int32Array.from({ length: Math.ceil(contextLength / interval) }, (_, step) => step * interval);
  return createHash('sha256').update(temperaturesOf(positions, temperature)).digest('hex').slice(0, 32);
}

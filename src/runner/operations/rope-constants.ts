import { createHash } from 'node:crypto';
import type { RopeConfig } from '../../ggml/rope-config.ts';

/** What decides the angle of each pair, besides its position and the model's divisors. All are floats. */
export interface RopeConstants {
  /** The angle of a pair is that of the pair before times this factor. */
  readonly step: number;
  /** Of angles in a stretched context. */
  readonly scale: number;
  /** Of cosines and sines. */
  readonly magnitude: number;
  /** By pair: YaRN's share of the angle that is not scaled. */
  readonly kept: Float32Array;
}

const float = Math.fround;

/** As in ggml's `ggml_rope_ext`. Powers and logarithms are those of this machine: `ropeDigest` covers them. */
export function ropeConstants(rope: RopeConfig): RopeConstants {
  const { dimension, freqBase, freqScale, extFactor, attnFactor, betaFast, betaSlow } = rope;
  const kept = new Float32Array(dimension / 2);
  const constants = {
    step: float(float(freqBase) ** float(-2 / dimension)),
    scale: float(freqScale),
    magnitude: float(attnFactor),
    kept,
  };
  if (extFactor === 0) return constants;
  const low = Math.max(0, Math.floor(pairOfTurns(rope, betaFast)));
  const high = Math.min(dimension - 1, Math.ceil(pairOfTurns(rope, betaSlow)));
  for (let pair = 0; pair < kept.length; pair++) {
    const ramp = float(float(pair - low) / Math.max(float(0.001), high - low));
    kept[pair] = float(1 - Math.min(1, Math.max(0, ramp))) * extFactor;
  }
  const raised = float(1 + float(float(0.1) * float(Math.log(float(1 / float(freqScale))))));
  return { ...constants, magnitude: float(float(attnFactor) * raised) };
}

/** The pair, as a fraction, that turns `turns` times within the original context. */
function pairOfTurns({ dimension, freqBase, originalContextLength }: RopeConfig, turns: number): number {
  const length = float(originalContextLength / float(turns * 2 * float(Math.PI)));
  return float(float(dimension * float(Math.log(length))) / float(2 * float(Math.log(float(freqBase)))));
}

/** A digest of the constants' bits. Machines with equal digests compute the same angles, even if their powers and logarithms differ. */
export function ropeDigest(ropes: readonly RopeConfig[]): string {
  const digest = createHash('sha256');
  for (const rope of ropes) {
    const { step, scale, magnitude, kept } = ropeConstants(rope);
    digest.update(`${rope.mode} ${rope.dimension} `);
    if (rope.divisors !== undefined) digest.update(Float32Array.from(rope.divisors));
    digest.update(Float32Array.of(step, scale, magnitude)).update(kept);
  }
  return digest.digest('hex').slice(0, 32);
}

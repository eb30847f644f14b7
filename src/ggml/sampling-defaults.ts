import { byEntries } from '../base/by-name.ts';
import type { GgufMetadata } from './gguf-metadata.ts';

/** Parameters of sampling that the publisher of a model recommends. */
export interface SamplingDefaults {
  readonly temperature?: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
  readonly repetitionPenalty?: number;
}

interface Source {
  readonly key: string;
  isAllowed(value: number): boolean;
}

/** llama.cpp's keys; its converter takes the values from `generation_config.json`. The ranges are those of `SamplingParams`. */
const sources: Readonly<Record<keyof SamplingDefaults, Source>> = {
  temperature: { key: 'temp', isAllowed: (value) => value >= 0 },
  topK: { key: 'top_k', isAllowed: (value) => Number.isInteger(value) && value >= 0 },
  topP: { key: 'top_p', isAllowed: (value) => value > 0 && value <= 1 },
  minP: { key: 'min_p', isAllowed: (value) => value >= 0 && value <= 1 },
  repetitionPenalty: { key: 'penalty_repeat', isAllowed: (value) => value > 0 },
};

/** Those of `general.sampling.*`. A value that no request could have is left out: it must not make every request fail. */
export function readSamplingDefaults({ entries }: Pick<GgufMetadata, 'entries'>): SamplingDefaults {
  const found = Object.entries(sources).flatMap(([name, { key, isAllowed }]) => {
    const entry = entries.get(`general.sampling.${key}`);
    const value = entry === undefined || 'elementType' in entry ? Number.NaN : numberOf(entry.value);
    return Number.isFinite(value) && isAllowed(value) ? [[name, value] as const] : [];
  });
  return byEntries(found);
}

/** As written before it was rounded to 32 bits: 0.7 instead of 0.699999988079071. */
const numberOf = (value: unknown): number =>
  typeof value === 'number' || typeof value === 'bigint' ? Number(Number(value).toPrecision(7)) : Number.NaN;

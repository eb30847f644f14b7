import { byName } from '../../base/by-name.ts';
import type { ModelReport } from './contract.ts';
import type { ModelPool } from './model-pool.ts';

/** A model that does not serve although it was asked for. */
interface ModelTrouble {
  readonly model: string;
  readonly state: 'failed' | 'silent';
  /** A sentence. */
  readonly message: string;
}

const shownMax = 10;

/** The body of `GET /health`: other models serve, so the server does. */
export function poolHealth(pool: ModelPool): object {
  const { all } = pool;
  const models = byName({ loaded: 0, loading: 0, failed: 0 });
  for (const { state } of all) if (state in models) models[state]!++;
  const troubles = all.flatMap((report) => troubleOf(report) ?? []);
  if (troubles.length === 0) return { status: 'ok', models };
  const shown = troubles.slice(0, shownMax);
  const more = troubles.length > shownMax ? ` ${troubles.length - shownMax} other models do not serve either.` : '';
  return {
    status: 'degraded',
    message: shown.map(({ message }) => message).join(' ') + more,
    models,
    troubles: shown,
  };
}

function troubleOf({ entry: { name: model }, state, failure, silentMs }: ModelReport): ModelTrouble | undefined {
  if (state === 'failed') return { model, state, message: sentence(failure?.message ?? `the model ${model} failed`) };
  if (silentMs === undefined) return undefined;
  const message = `The process of the model ${model} has not answered for ${Math.round(silentMs / 1000)} s.`;
  return { model, state: 'silent', message };
}

const sentence = (text: string): string => text[0]!.toUpperCase() + text.slice(1) + (text.endsWith('.') ? '' : '.');

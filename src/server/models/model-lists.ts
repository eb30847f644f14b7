import type { FastifyInstance } from 'fastify';
import type { JsonObject } from '../../base/json.ts';
import { shownNames } from '../../engine/model-names.ts';
import { fieldMissing } from '../http/server-errors.ts';
import type { ModelReport } from './contract.ts';
import { modelUnknown } from './errors.ts';
import type { ModelPool } from './model-pool.ts';

/** `GET /v1/models`, and llama-server's `POST /models/load` and `/models/unload`. */
export function registerModelLists(app: FastifyInstance, pool: ModelPool): void {
  const created = Math.floor(Date.now() / 1000);
  const all = async () => {
    const reports = await pool.reports();
    return { object: 'list', data: reports.flatMap((report) => cardsOf(report, created)) };
  };
  app.get('/v1/models', all);
  // Names may have slashes.
  app.get<{ Params: { '*': string } }>('/v1/models/*', async ({ params: { '*': name } }) => {
    const cards = (await all()).data;
    const named = (asked: string | undefined) => cards.find(({ id }) => id === asked);
    const card = named(name) ?? named(await pool.nameOf(name));
    if (card === undefined) throw modelUnknown({ parameter: 'model', requested: name.slice(0, 100) });
    return card;
  });
  const config = { isForAdmins: true };
  app.post('/models/load', { config }, async ({ body }) => {
    await pool.load(nameIn(body));
    return { success: true };
  });
  app.post('/models/unload', { config }, async ({ body }) => {
    await pool.unload(nameIn(body));
    return { success: true };
  });
}

/** One for each name of the model. */
function cardsOf({ entry, state, progress, failure, facts }: ModelReport, created: number) {
  const names = new Set([entry.name, ...shownNames([...entry.aliases, ...(facts?.names ?? [])])]);
  return Array.from(names, (id) => ({
    id,
    object: 'model',
    created,
    owned_by: 'kvasir',
    root: entry.name,
    parent: null,
    status: state,
    ...(facts === undefined ? {} : { max_model_len: facts.maxModelLen }),
    ...(progress === undefined ? {} : { progress: progressOf(progress) }),
    ...(failure === undefined ? {} : { error: failure }),
  }));
}

function progressOf({ retryAfterSeconds: _, ...progress }: NonNullable<ModelReport['progress']>): object {
  return progress;
}

function nameIn(body: unknown): string {
  const { fields } = (body ?? {}) as { readonly fields?: JsonObject };
  const model = fields?.model;
  if (typeof model === 'string') return model;
  throw fieldMissing({ parameter: 'model', expected: 'the name of a model' });
}

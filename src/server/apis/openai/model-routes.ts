import type { FastifyInstance } from 'fastify';
import type { AsyncEngine } from '../../../engine/contract.ts';
import { shownNames } from '../../../engine/model-names.ts';
import { engineFor } from '../../generation/engine-for.ts';
import type { ModelCard } from './types.ts';

/** The model, by each of its names, and its adapters. */
export function registerModelCards(app: FastifyInstance, engine: AsyncEngine): void {
  const { model } = engine;
  const created = Math.floor(Date.now() / 1000);
  const cardOf = (id: string, parent: string | null = null): ModelCard => ({
    id,
    object: 'model',
    created,
    owned_by: 'kvasir',
    root: parent === null ? model.name : id,
    parent,
    max_model_len: model.maxModelLen,
    ...(parent === null && model.description !== undefined ? { description: model.description } : {}),
  });
  const cards = (): ModelCard[] => [
    ...[model.name, ...shownNames(model.aliases ?? [])].map((id) => cardOf(id)),
    ...(engine.adapters?.list() ?? []).map(({ name }) => cardOf(name, model.name)),
  ];
  app.get('/v1/models', { config: { about: { summary: 'The model, by each of its names.' } } }, () => ({
    object: 'list',
    data: cards(),
  }));
  app.get<{ Params: { model: string } }>(
    '/v1/models/:model',
    { config: { about: { summary: 'The model.', answer: 'ModelCard' } } },
    (request) => {
      const { name } = engineFor(engine, request.params.model).model;
      const listed = cards();
      // A name that only a pattern has is not listed.
      return listed.find(({ id }) => id === request.params.model) ?? listed.find(({ id }) => id === name);
    },
  );
}

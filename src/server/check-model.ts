import type { AsyncEngine } from '../engine/contract.ts';
import { modelNotFound } from './server-errors.ts';

export function checkModel(engine: AsyncEngine, requested: string | undefined): void {
  const { name: served, aliases = [] } = engine.model;
  if (requested !== undefined && requested !== served && !aliases.includes(requested)) {
    throw modelNotFound({ parameter: 'model', requested: requested.slice(0, 100), served });
  }
}

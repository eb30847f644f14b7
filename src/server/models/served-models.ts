import type { JsonObject } from '../../base/json.ts';
import { parseJson } from '../http/http.ts';
import type { ServedApp } from '../server.ts';
import type { ModelPool } from './model-pool.ts';
import { type ForwardedBody, registerRouter } from './model-router.ts';

/** Several models as one server. */
export function servedModels(pool: ModelPool): ServedApp {
  return {
    register: (app, options) => registerRouter(app, pool, options),
    parseBody: readForwarded,
    drain: () => pool.drain(),
    // The processes abort their requests themselves: they have the same time limit.
    close: () => pool.drain(),
  };
}

/** The process of the model reads the fields again, and checks them. */
function readForwarded(bytes: Buffer): ForwardedBody {
  const parsed = parseJson(bytes);
  const isObject = typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed);
  return { bytes, fields: isObject ? (parsed as JsonObject) : {} };
}

import { afterEach, describe, expect, it } from 'vitest';
import { serveModelsHere } from '../../../test/support/model-processes.ts';
import { forwardedRoutes } from './forwarded-routes.ts';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

describe('/openapi.json of several models', () => {
  it('describes every route that models answer, without a key and without a loaded model', async () => {
    const keys = { apiKey: ['one', 'two'], rootPath: '/llm' };
    const here = await serveModelsHere({ engine: keys }, keys);
    cleanups.push(here.close);
    const answer = await fetch(`${here.origin}/openapi.json`);
    expect(answer.headers.get('content-type')).toContain('application/json');
    const { paths } = (await answer.json()) as {
      readonly paths: Record<
        string,
        Record<string, { readonly parameters?: readonly object[]; readonly requestBody?: object }>
      >;
    };
    const parameter = expect.objectContaining({ name: 'model', in: 'query', required: true });
    for (const { method, url, by } of forwardedRoutes) {
      const operation = paths[url.replace(/:(\w+)/g, '{$1}')]?.[method.toLowerCase()];
      expect([url, operation]).toEqual([url, expect.anything()]);
      if (by === 'query') expect(operation!.parameters).toContainEqual(parameter);
    }
    expect(paths['/v1/chat/completions']!.post!.requestBody).toBeDefined();
    expect(here.started.length).toBe(0);
  });
});

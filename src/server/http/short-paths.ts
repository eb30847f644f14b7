import type { FastifyInstance } from 'fastify';

/** As in llama-server, a path that begins with `/v1` is a route without it too. Of the routes that follow. */
export function addShortPaths(app: FastifyInstance): void {
  app.addHook('onRoute', ({ routePath, url: _, path: __, prefix: ___, ...route }) => {
    if (routePath.startsWith('/v1/') && route.method !== 'HEAD')
      app.route({ ...route, url: routePath.slice(3), config: { ...route.config, isOtherPath: true } });
  });
}

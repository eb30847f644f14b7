import { readFileSync } from 'node:fs';
import type { FastifyInstance } from 'fastify';
import { byEntries, byName } from '../../base/by-name.ts';
import { sourceFile } from '../../base/package-files.ts';
import type { ParseLimits } from '../generation/request.ts';
import type { BodyDescription, RouteDescription } from '../generation/route-description.ts';
import { FieldSchema, type Schema } from './field-schema.ts';

interface DescribedRoute {
  readonly method: string;
  readonly path: string;
  readonly isPublic: boolean;
  readonly about: RouteDescription;
}

/** The routes of a context that are registered after this call, each as it describes itself. */
export function registerOpenApi(app: FastifyInstance, version: string, limits: ParseLimits): void {
  const routes: DescribedRoute[] = [];
  app.addHook('onRoute', ({ method, routePath, config }) => {
    if (config?.about === undefined || config.isOtherPath === true) return;
    const { about, isPublic = false } = config;
    for (const each of [method].flat())
      if (each !== 'HEAD') routes.push({ method: each, path: routePath, isPublic, about });
  });
  let json: string | undefined;
  const about = { summary: 'This description.' };
  app.get('/openapi.json', { config: { about, isPublic: true } }, (_, reply) => {
    // Paths are relative to the server, whose address the client knows.
    json ??= JSON.stringify(describeRoutes(routes, { version, root: app.prefix === '' ? '/' : app.prefix }, limits));
    return reply.type('application/json').send(json);
  });
}

/** An OpenAPI document, of version 3.1. */
function describeRoutes(
  routes: readonly DescribedRoute[],
  { version, root }: { readonly version: string; readonly root: string },
  limits: ParseLimits,
): Schema {
  const paths: Record<string, Record<string, Schema>> = byName();
  for (const route of routes) {
    const path = route.path.replace(/:(\w+)/g, '{$1}');
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operation(route, limits) };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Kvasir',
      version,
      description: 'Paths that begin with /v1 are routes without it too. Fields that are not described are ignored.',
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: root }],
    paths,
    components: {
      schemas: namedIn(paths, answerSchemas()),
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer' },
        header: { type: 'apiKey', in: 'header', name: 'x-api-key' },
      },
    },
  };
}

function operation({ method, path, isPublic, about }: DescribedRoute, limits: ParseLimits): Schema {
  const { summary, body, error = 'OpenAiErrorBody' } = about;
  const parameters = [...path.matchAll(/:(\w+)/g)].map(([, name]) => ({
    name,
    in: 'path',
    required: true,
    schema: { type: 'string', minLength: 1 },
  }));
  const ofError = { content: { 'application/json': { schema: reference(error) } } };
  return {
    operationId: `${method.toLowerCase()}${path.replace(/[^A-Za-z0-9]+(\w?)/g, (_, letter: string) => letter.toUpperCase())}`,
    summary,
    ...(parameters.length === 0 ? {} : { parameters }),
    security: isPublic ? [] : [{ bearer: [] }, { header: [] }],
    ...(body === undefined ? {} : { requestBody: { required: true, content: bodyContent(body, limits) } }),
    responses: {
      200: { description: 'The answer.', content: answerContent(about) },
      '4XX': { description: 'The server refuses the request.', ...ofError },
      default: { description: 'An error.', ...ofError },
    },
  };
}

function bodyContent({ example, others = [], reads }: BodyDescription, limits: ParseLimits): Schema {
  const read = reads.map((each) => {
    const fields = new FieldSchema();
    for (const [i, body] of [example, ...others].entries()) each(body, { ...limits, observer: fields.observer(i) });
    return fields.schema;
  });
  const properties = Object.assign({}, ...read.map((schema) => schema.properties).reverse());
  return { 'application/json': { schema: { ...read[0], properties }, example } };
}

function answerContent({ answer, chunk, media }: RouteDescription): Schema {
  const isOtherMedia = media === 'text/plain' || media === 'text/html';
  const names = answer === undefined ? [] : [answer].flat();
  const forms = names.map(reference);
  const whole = forms.length === 0 ? {} : forms.length === 1 ? forms[0] : { anyOf: forms };
  const content = chunk === undefined ? {} : { contentMediaType: 'application/json', contentSchema: reference(chunk) };
  // Of a stream of events, the schema is that of an event. OpenAI's streams end with `[DONE]`.
  const stream =
    media === 'text/event-stream'
      ? {
          type: 'object',
          properties: {
            event: { type: 'string' },
            data: { anyOf: [{ const: '[DONE]' }, { type: 'string', ...content }] },
          },
        }
      : { type: 'string', ...content };
  return {
    ...(isOtherMedia ? {} : { 'application/json': { schema: whole } }),
    ...(media === undefined ? {} : { [media]: { schema: stream } }),
  };
}

const reference = (name: string): Schema => ({ $ref: `#/components/schemas/${name}` });

/** The schemas that `part` names, and those that they name. */
function namedIn(part: object, schemas: Schema): Schema {
  const names = new Set<string>();
  const visit = (from: unknown): void => {
    for (const [, name = ''] of JSON.stringify(from).matchAll(/"#\/components\/schemas\/(\w+)"/g)) {
      if (names.has(name)) continue;
      names.add(name);
      visit(schemas[name]);
    }
  };
  visit(part);
  return byEntries(Object.entries(schemas).filter(([name]) => names.has(name)));
}

let read: Schema | undefined;

/** Written by `scripts/answer-schemas.ts` from the types of answers. */
function answerSchemas(): Schema {
  read ??= JSON.parse(readFileSync(sourceFile('server/openapi/answer-schemas.json'), 'utf8')) as Schema;
  return read;
}

import { Ajv2020 } from 'ajv/dist/2020.js';
import { expect, it } from 'vitest';
import { closeServers, type Json, serveLetters } from '../apis/responses/served-letters.suite.ts';

/** `/openapi.json`: a description that routes, readers of fields and types of answers write. */
closeServers();

type Operation = {
  readonly requestBody?: {
    readonly content: Readonly<Record<string, { readonly schema: object; readonly example: object }>>;
  };
  readonly responses: Readonly<
    Record<string, { readonly content: Readonly<Record<string, { readonly schema: object }>> }>
  >;
};

async function described() {
  const served = await serveLetters({ answer: 'x', fimTokens: { prefix: 1, suffix: 2, middle: 3 } });
  const text = await (await fetch(`${served.origin}/openapi.json`)).text();
  const document = JSON.parse(text) as {
    paths: Record<string, Record<string, Operation>>;
    components: { schemas: object };
  };
  return { ...served, document };
}

it('has exactly the routes of the server', async () => {
  const { server, document } = await described();
  const table = server.app.printRoutes({ commonPrefix: false, includeHooks: false });
  const names: string[] = [];
  const folders: string[] = [];
  for (const line of table.trimEnd().split('\n')) {
    const [, indent, path, methods] = /^([│├└─ ]*)([^ ]*) ?(?:\((.*)\))?$/.exec(line)!;
    folders.splice((indent!.length - 4) / 4, folders.length, path!);
    for (const method of methods?.split(', ') ?? []) if (method !== 'HEAD') names.push(`${method} ${folders.join('')}`);
  }
  const shown = Object.entries(document.paths).flatMap(([path, operations]) =>
    Object.keys(operations).map((method) => `${method.toUpperCase()} ${path.replace(/\{(\w+)\}/g, ':$1')}`),
  );
  const isShort = (name: string) => names.includes(name.replace(' /', ' /v1/')) && !name.includes(' /v1/');
  expect(new Set(shown)).toEqual(new Set(names.filter((name) => !isShort(name))));
  expect(shown.length).toBeGreaterThan(30);
});

it('describes fields as their readers check them', async () => {
  const { document } = await described();
  const schemaOf = (path: string) =>
    document.paths[path]!.post!.requestBody!.content['application/json']!.schema as unknown as Json;
  const chat = schemaOf('/v1/chat/completions');
  expect(chat.required).toEqual(['messages']);
  expect(chat.properties).toMatchObject({
    stream: { type: ['boolean', 'null'] },
    temperature: { type: ['number', 'null'], minimum: 0 },
    top_p: { type: ['number', 'null'], exclusiveMinimum: 0, maximum: 1 },
    top_logprobs: { type: ['integer', 'null'], minimum: 0, maximum: 20 },
    reasoning_effort: { enum: expect.arrayContaining(['low', null]) },
    messages: { type: 'array', items: { properties: { role: { type: 'string' } } } },
    tools: {
      items: { properties: { function: { properties: { name: {} }, required: ['name'] } } },
    },
  });
  const messages = schemaOf('/v1/messages');
  expect(messages.properties).toMatchObject({ system: {}, min_p: { maximum: 1 }, messages: { type: 'array' } });
});

it('has an example of each body that its schema and the route accept, and schemas that the answers have', async () => {
  const { document, post } = await described();
  const ajv = new Ajv2020({ strict: false, formats: { double: true } });
  ajv.addSchema({ ...document, $id: 'api' });
  const resolve = (schema: object) => ({
    $id: undefined,
    ...JSON.parse(JSON.stringify(schema).replaceAll('"#/', '"api#/')),
  });
  let checked = 0;
  // The answers of these routes need another engine.
  const otherEngine = /embed|score|rerank|lora|cache.lose/;
  for (const [path, { post: operation }] of Object.entries(document.paths)) {
    const content = operation?.requestBody?.content['application/json'];
    if (content === undefined || otherEngine.test(path)) continue;
    const valid = ajv.validate(resolve(content.schema), content.example);
    expect([path, valid, valid ? [] : ajv.errors]).toEqual([path, true, []]);
    const example = { ...content.example, ...('model' in content.example ? { model: 'letters' } : {}), stream: false };
    const { stream_options: _, response_format: __, ...body } = example as Record<string, unknown>;
    const { status, body: answer } = await post(path.includes('token') ? content.example : body, path);
    expect([path, status, answer.error]).toEqual([path, 200, path === '/v1/responses' ? null : undefined]);
    const schema = operation!.responses[200]!.content['application/json']!.schema;
    const isRight = ajv.validate(resolve(schema), answer);
    expect([path, isRight, isRight ? [] : ajv.errors]).toEqual([path, true, []]);
    checked++;
  }
  expect(checked).toBeGreaterThan(12);
});

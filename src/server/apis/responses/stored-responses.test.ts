import { once } from 'node:events';
import { connect } from 'node:net';
import type OpenAI from 'openai';
import { describe, expect, it, vi } from 'vitest';
import { closeServers, serveLetters } from './served-letters.suite.ts';

closeServers();

const model = 'letters';
const PATIENCE = { timeout: 60_000, interval: 5 };

/** Steps wait until the test opens the gate. */
function gate() {
  let open: () => void = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { beforeStep: () => opened, open: () => open() };
}

describe('a stored response', () => {
  it('can be retrieved and deleted', async () => {
    const { client } = await serveLetters({ answer: 'Sunny.' });
    const created = await client.responses.create({ model, input: 'Rome?' });
    const { output_text, ...stored } = await client.responses.retrieve(created.id);
    expect({ output_text, ...stored }).toEqual(created);
    expect(await client.responses.delete(created.id)).toEqual({ id: created.id, object: 'response', deleted: true });
    await expect(client.responses.retrieve(created.id)).rejects.toMatchObject({
      status: 404,
      code: 'KVASIR_RESPONSE_NOT_FOUND',
    });
    await expect(client.responses.delete(created.id)).rejects.toMatchObject({ status: 404 });
  });

  it('can be continued, more than once, and without its instructions', async () => {
    const { client, rendered } = await serveLetters({ answer: 'Sunny.' });
    const first = await client.responses.create({ model, input: 'Rome?', instructions: 'Be brief.' });
    const second = await client.responses.create({ model, input: 'Oslo?', previous_response_id: first.id });
    await client.responses.create({ model, input: 'Bern?', previous_response_id: second.id, instructions: 'Be kind.' });
    await client.responses.create({ model, input: 'Kyiv?', previous_response_id: first.id });
    const texts = rendered.map(({ messages }) => messages.map(({ content }) => content));
    expect(texts).toEqual([
      ['Be brief.', 'Rome?'],
      ['Rome?', 'Sunny.', 'Oslo?'],
      ['Be kind.', 'Rome?', 'Sunny.', 'Oslo?', 'Sunny.', 'Bern?'],
      ['Rome?', 'Sunny.', 'Kyiv?'],
    ]);
    expect(second.previous_response_id).toBe(first.id);
  });

  it('with calls of functions continues with their results', async () => {
    const answer = '<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}</tool_call>';
    const { client, rendered } = await serveLetters({ answer });
    const tools = [{ type: 'function', name: 'get_weather', parameters: {}, strict: false } as const];
    const first = await client.responses.create({ model, input: 'Rome?', tools });
    const { call_id } = first.output[0] as OpenAI.Responses.ResponseFunctionToolCall;
    const input = [{ type: 'function_call_output', call_id, output: 'sun' } as const];
    await client.responses.create({ model, input, tools, previous_response_id: first.id });
    const called = { name: 'get_weather', arguments: { city: 'Rome' } };
    expect(rendered[1]!.messages).toEqual([
      { role: 'user', content: 'Rome?' },
      { role: 'assistant', content: '', tool_calls: [{ id: call_id, type: 'function', function: called }] },
      { role: 'tool', tool_call_id: call_id, content: 'sun' },
    ]);
  });

  it('has items to which later requests can refer', async () => {
    const { client, rendered, post } = await serveLetters({ answer: 'Sunny.' });
    const { output, id } = await client.responses.create({ model, input: 'Rome?' });
    const input = [
      { role: 'user', content: 'Oslo?' } as const,
      { type: 'item_reference', id: output[0]!.id! } as const,
      { role: 'user', content: 'And?' } as const,
    ];
    await client.responses.create({ model, input });
    expect(rendered[1]!.messages.map(({ content }) => content)).toEqual(['Oslo?', 'Sunny.', 'And?']);
    await client.responses.delete(id);
    const { status, body } = await post({ input });
    expect(status).toBe(400);
    expect(body.error).toMatchObject({ code: 'KVASIR_ITEM_NOT_FOUND', param: 'input' });
  });

  it('can be continued after an earlier response of its conversation was deleted', async () => {
    const { client, rendered } = await serveLetters({ answer: 'Sunny.' });
    const first = await client.responses.create({ model, input: 'Rome?' });
    const second = await client.responses.create({ model, input: 'Oslo?', previous_response_id: first.id });
    await client.responses.delete(first.id);
    await client.responses.create({ model, input: 'Bern?', previous_response_id: second.id });
    expect(rendered[2]!.messages).toHaveLength(5);
    const gone = client.responses.create({ model, input: 'Kyiv?', previous_response_id: first.id });
    await expect(gone).rejects.toMatchObject({ status: 400, code: 'previous_response_not_found' });
  });

  it('is removed when newer responses need its memory', async () => {
    const { client } = await serveLetters({ answer: 'Sunny.' }, { responseStoreMaxBytes: 20_000 });
    const ids: string[] = [];
    for (let i = 0; i < 20; i++) ids.push((await client.responses.create({ model, input: `${i}` })).id);
    expect((await client.responses.retrieve(ids.at(-1)!)).id).toBe(ids.at(-1));
    await expect(client.responses.retrieve(ids[0]!)).rejects.toMatchObject({ status: 404 });
  });
});

it('a response with `store: false` is not stored', async () => {
  const { client } = await serveLetters({ answer: 'Sunny.' });
  const created = await client.responses.create({ model, input: 'Rome?', store: false });
  expect(created).toMatchObject({ store: false });
  await expect(client.responses.retrieve(created.id)).rejects.toMatchObject({ status: 404 });
  const next = client.responses.create({ model, input: 'Oslo?', previous_response_id: created.id });
  await expect(next).rejects.toMatchObject({ status: 400, param: 'previous_response_id' });
});

describe('a response that is generated', () => {
  it('can be retrieved, but neither continued nor deleted, until it ends', async () => {
    const { beforeStep, open } = gate();
    const { client, engine, post } = await serveLetters({ beforeStep, answer: 'Sunny.' });
    const { id, status } = await client.responses.create({ model, input: 'Rome?', background: true });
    expect(status).toBe('queued');
    await vi.waitFor(() => expect(engine.stats().running).toBe(1), PATIENCE);
    expect(await client.responses.retrieve(id)).toMatchObject({ status: 'queued', output: [], usage: null });
    const { body } = await post({ input: 'Oslo?', previous_response_id: id });
    expect(body.error).toMatchObject({
      code: 'KVASIR_RESPONSE_NOT_USABLE',
      param: 'previous_response_id',
      message: `The response \`${id}\` is queued, so it cannot be continued. Wait until it has ended.`,
    });
    await expect(client.responses.delete(id)).rejects.toMatchObject({ status: 400 });
    open();
    await vi.waitFor(
      async () => expect(await client.responses.retrieve(id)).toMatchObject({ status: 'completed' }),
      PATIENCE,
    );
    expect((await client.responses.create({ model, input: 'Oslo?', previous_response_id: id })).status).toBe(
      'completed',
    );
  });

  it('in the background can be cancelled, and then stays as it is', async () => {
    const { beforeStep } = gate();
    const { client, engine } = await serveLetters({ beforeStep });
    const { id } = await client.responses.create({ model, input: 'Rome?', background: true });
    await vi.waitFor(() => expect(engine.stats().running).toBe(1), PATIENCE);
    expect(await client.responses.cancel(id)).toMatchObject({ id, status: 'cancelled', output: [] });
    await vi.waitFor(() => expect(engine.stats()).toMatchObject({ running: 0, aborts: 1 }), PATIENCE);
    expect(await client.responses.cancel(id)).toMatchObject({ status: 'cancelled' });
    expect(await client.responses.retrieve(id)).toMatchObject({ status: 'cancelled' });
    await expect(client.responses.cancel('resp_none')).rejects.toMatchObject({ status: 404 });
  });

  it('in the background can be cancelled in the middle of its stream', async () => {
    let steps = 0;
    const { beforeStep } = gate();
    const { client } = await serveLetters({ beforeStep: () => (++steps > 5 ? beforeStep() : Promise.resolve()) });
    const stream = await client.responses.create({ model, input: 'Rome?', background: true, stream: true });
    const types: string[] = [];
    let id = '';
    for await (const event of stream) {
      types.push(event.type);
      if (event.type === 'response.created') id = event.response.id;
      if (types.filter((type) => type === 'response.output_text.delta').length === 5) {
        expect(await client.responses.retrieve(id)).toMatchObject({ status: 'in_progress', usage: null });
        const { output } = await client.responses.cancel(id);
        expect(output).toMatchObject([{ status: 'incomplete', content: [{ text: expect.stringMatching(/^\w{5}$/) }] }]);
        types.length = 0;
      }
    }
    expect(types).toEqual([]);
    expect(await client.responses.retrieve(id)).toMatchObject({ status: 'cancelled' });
  });

  it('in the background fails without a client, and says why', async () => {
    const { client } = await serveLetters({ failAtStep: 2 });
    const { id } = await client.responses.create({ model, input: 'Rome?', background: true });
    await vi.waitFor(
      async () => expect(await client.responses.retrieve(id)).toMatchObject({ status: 'failed' }),
      PATIENCE,
    );
  });

  it('without `background` cannot be cancelled', async () => {
    const { client } = await serveLetters({ answer: 'Sunny.' });
    const { id } = await client.responses.create({ model, input: 'Rome?' });
    await expect(client.responses.cancel(id)).rejects.toMatchObject({
      status: 400,
      message: expect.stringContaining('Only responses with `background` can be cancelled'),
    });
  });

  it('ends with the connection of its client and is not stored, except in the background', async () => {
    for (const background of [false, true]) {
      const { beforeStep, open } = gate();
      let steps = 0;
      const { origin, engine, client } = await serveLetters({
        beforeStep: () => (++steps > 2 ? beforeStep() : Promise.resolve()),
        answer: 'Sunny.',
      });
      const socket = connect(Number(new URL(origin).port), '127.0.0.1');
      const body = JSON.stringify({ input: 'Rome?', stream: true, background });
      const head = `POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${body.length}`;
      socket.write(`${head}\r\n\r\n${body}`);
      let text = '';
      while (!text.includes('output_text.delta')) text += String((await once(socket, 'data'))[0]);
      const id = /"id":"(resp_\w+)"/.exec(text)![1]!;
      expect((await client.responses.retrieve(id)).status).toBe('in_progress');
      socket.destroy();
      if (background) open();
      await vi.waitFor(() => expect(engine.stats().running).toBe(0), PATIENCE);
      expect(engine.stats().aborts).toBe(background ? 0 : 1);
      if (background) expect((await client.responses.retrieve(id)).output_text).toBe('Sunny.');
      else await expect(client.responses.retrieve(id)).rejects.toMatchObject({ status: 404 });
    }
  });
});

it('the events of an ended response cannot be read again', async () => {
  const { client } = await serveLetters({ answer: 'Sunny.' });
  const { id } = await client.responses.create({ model, input: 'Rome?' });
  await expect(client.responses.retrieve(id, { stream: true })).rejects.toMatchObject({ status: 400, param: 'stream' });
});

it('a server that shuts down answers 503 to new responses', async () => {
  const { client, server } = await serveLetters({ answer: 'Sunny.' });
  const { id } = await client.responses.create({ model, input: 'Rome?' });
  server.beginDrain();
  await expect(client.responses.create({ model, input: 'Oslo?' })).rejects.toMatchObject({ status: 503 });
  expect((await client.responses.retrieve(id)).id).toBe(id);
});

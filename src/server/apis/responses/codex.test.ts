import { describe, expect, it } from 'vitest';
import { closeServers, serveLetters } from './served-letters.suite.ts';

/** Requests as Codex sends them, with tools that no other server than OpenAI's has. */
closeServers();

const lark = 'start: begin hunk+ end\nbegin: "*** Begin Patch" LF\n%import common.LF';
const request = {
  model: 'letters',
  instructions: 'You are a coding agent.',
  input: [
    { type: 'message', role: 'developer', content: [{ type: 'input_text', text: 'Sandbox.' }] },
    { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Fix it.' }] },
    { type: 'reasoning', id: 'rs_1', summary: [], content: null, encrypted_content: 'gAAA' },
    { type: 'custom_tool_call', status: 'completed', call_id: 'c1', name: 'apply_patch', input: '*** "Begin"\n' },
    { type: 'custom_tool_call_output', call_id: 'c1', output: 'Done.' },
    { type: 'function_call', call_id: 'c2', name: 'list', namespace: 'mcp__files__', arguments: '{"path":"."}' },
    { type: 'function_call_output', call_id: 'c2', output: [{ type: 'input_text', text: 'a.ts' }] },
    {
      type: 'local_shell_call',
      id: 'lsh_1',
      call_id: 'c3',
      status: 'completed',
      action: { type: 'exec', command: ['ls'], timeout_ms: 1e3, working_directory: null, env: null },
    },
    { type: 'function_call_output', call_id: 'c3', output: '{"output":"a.ts"}' },
    { type: 'web_search_call', id: 'ws_1', status: 'completed', action: { type: 'search', query: 'x' } },
    {
      type: 'message',
      role: 'assistant',
      phase: 'final',
      end_turn: true,
      content: [{ type: 'output_text', text: 'So.' }],
    },
    { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Go on.' }] },
  ],
  tools: [
    {
      type: 'function',
      name: 'shell',
      description: 'Runs.',
      strict: false,
      parameters: { type: 'object', properties: {} },
    },
    { type: 'local_shell' },
    { type: 'web_search', external_web_access: true, search_content_types: ['text'] },
    {
      type: 'custom',
      name: 'apply_patch',
      description: 'Patches.',
      format: { type: 'grammar', syntax: 'lark', definition: lark },
    },
    {
      type: 'namespace',
      name: 'mcp__files__',
      description: 'Files.',
      tools: [{ type: 'function', name: 'list', strict: false, parameters: { type: 'object', properties: {} } }],
    },
    { type: 'tool_search', execution: 'client', description: 'd', parameters: {} },
  ],
  tool_choice: 'auto',
  parallel_tool_calls: true,
  reasoning: { effort: 'medium', summary: 'auto' },
  store: false,
  include: ['reasoning.encrypted_content'],
  prompt_cache_key: '0199',
  service_tier: 'priority',
  text: { verbosity: 'low' },
  client_metadata: { 'x-codex-installation-id': 'a' },
};
const call = (name: string, given: object) =>
  `<tool_call>\n${JSON.stringify({ name, arguments: given })}\n</tool_call>`;

describe("Codex's requests", () => {
  it('are served: what has no effect is named, and earlier calls reach the model', async () => {
    const { origin, rendered } = await serveLetters({ answer: 'Yes.' });
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(`${origin}/v1/responses`, { method: 'POST', headers, body: JSON.stringify(request) });
    expect(response.status).toBe(200);
    expect(response.headers.get('warning')).toBe(
      '299 kvasir "ignored: text.verbosity, reasoning.summary, include: reasoning.encrypted_content, tools[1] (local_shell), ' +
        'tools[2] (web_search), tools[3].format (lark), tools[5] (tool_search), input[9] (web_search_call)"',
    );
    const { messages, variables } = rendered[0]!;
    const called = (messages as readonly { tool_calls?: { function: object }[] }[]).flatMap(({ tool_calls = [] }) =>
      tool_calls.map((one) => one.function),
    );
    expect(called).toMatchObject([
      { name: 'apply_patch', arguments: { input: '*** "Begin"\n' } },
      { name: 'mcp__files__list', arguments: { path: '.' } },
      { name: 'local_shell', arguments: { type: 'exec', command: ['ls'] } },
    ]);
    const tools = (variables as { tools: { function: { name: string; description?: string } }[] }).tools;
    expect(tools.map((tool) => tool.function.name)).toEqual(['shell', 'apply_patch', 'mcp__files__list']);
    expect(tools[1]!.function.description).toBe(`Patches.\n\nThe input follows this Lark grammar:\n${lark}`);
    const { tools: echo } = (await response.json()) as { tools: { type: string }[] };
    expect(echo.map(({ type }) => type)).toEqual(['function', 'custom', 'namespace']);
  });

  it('get calls of custom tools and of groups as the client named them, streamed and not', async () => {
    const answer = call('apply_patch', { input: '*** Begin\n"é"' }) + call('mcp__files__list', { path: 'b' });
    const { client } = await serveLetters({ answer });
    const created = await client.responses.create(request as never);
    const output = (created as unknown as { output: object[] }).output;
    expect(output).toMatchObject([
      {
        type: 'custom_tool_call',
        id: expect.stringMatching(/^ctc_/),
        name: 'apply_patch',
        input: '*** Begin\n"é"',
        status: 'completed',
      },
      { type: 'function_call', name: 'list', namespace: 'mcp__files__', arguments: '{"path":"b"}' },
    ]);
    const events: { type: string; delta?: string; input?: string; item?: object }[] = [];
    const stream = await client.responses.create({ ...request, stream: true } as never);
    for await (const event of stream as unknown as AsyncIterable<{ type: string }>) events.push(event);
    const custom = events.filter(({ type }) => type.startsWith('response.custom_tool_call_input'));
    expect(custom.map(({ type, delta, input }) => [type.split('.').at(-1), delta ?? input])).toEqual([
      ['delta', '*** Begin\n"é"'],
      ['done', '*** Begin\n"é"'],
    ]);
    const added = events.find(({ type }) => type === 'response.output_item.added');
    expect(added!.item).toMatchObject({ type: 'custom_tool_call', input: '', status: 'in_progress' });
    const done = events.filter(({ type }) => type === 'response.output_item.done').map(({ item }) => item);
    const stripped = (items: readonly object[]) => items.map((item) => ({ ...item, id: '', call_id: '' }));
    expect(stripped(done as object[])).toEqual(stripped(output));
  });

  it('can continue a stored response with calls of custom tools', async () => {
    const { client, rendered } = await serveLetters({ answer: call('apply_patch', { input: 'a' }) });
    const first = await client.responses.create({ ...request, store: true } as never);
    const { id, output } = first as unknown as { id: string; output: { call_id: string }[] };
    const result = { type: 'custom_tool_call_output', call_id: output[0]!.call_id, output: 'ok' };
    await client.responses.create({ ...request, store: true, previous_response_id: id, input: [result] } as never);
    const last = (rendered[1]!.messages as readonly { role: string }[]).slice(-2);
    expect(last).toMatchObject([
      { role: 'assistant', tool_calls: [{ function: { name: 'apply_patch', arguments: { input: 'a' } } }] },
      { role: 'tool', content: 'ok' },
    ]);
  });

  it('may choose a custom tool, whose regular expression holds then', async () => {
    const { client, engine } = await serveLetters({ answer: call('pick', { input: 'ab' }) });
    const pick = { type: 'custom', name: 'pick', format: { type: 'grammar', syntax: 'regex', definition: 'a|ab' } };
    const tool_choice = { type: 'custom', name: 'pick' };
    await client.responses.create({ ...request, tools: [pick], tool_choice } as never);
    const { grammar } = engine.requests[0] as { grammar?: { key: string } };
    expect(grammar!.key).toContain(JSON.stringify('"pattern":"^(?:a|ab)$"').slice(1, -1));
    const allowed = { type: 'allowed_tools', mode: 'required', tools: [tool_choice, { type: 'web_search' }] };
    await client.responses.create({ ...request, tools: [...request.tools, pick], tool_choice: allowed } as never);
    const { grammar: second } = engine.requests[1] as { grammar?: { key: string } };
    expect(second!.key).not.toContain('apply_patch');
  });

  it.each([
    ['{"patch":"a"}', 'a'],
    ['{"a":"b","c":"d"}', '{"a":"b","c":"d"}'],
    ['{"input":7}', '{"input":7}'],
  ])('give the input of a custom tool in %s', async (given, input) => {
    const { client } = await serveLetters({
      answer: `<tool_call>{"name":"apply_patch","arguments":${given}}</tool_call>`,
    });
    const { output } = (await client.responses.create(request as never)) as unknown as { output: object[] };
    expect(output).toMatchObject([{ type: 'custom_tool_call', input }]);
  });
});

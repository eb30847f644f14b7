import { describeValue } from '../../../base/describe-value.ts';
import { type ExactJson, plainJson } from '../../../base/exact-json.ts';
import { type FieldReader, shapes } from '../../../base/field-reader.ts';
import { isJsonObject, type JsonObject } from '../../../base/json.ts';
import { nearestName } from '../../../base/nearest-name.ts';
import { fieldNotSupported } from '../../http/server-errors.ts';
import { schemaExpected, toolNameExpected, toolNamePattern } from '../openai/tools.ts';
import { customParameters, shownName, type ToolName } from './tool-names.ts';

export interface ResponseTools {
  /** `tools`, `tool_choice` and `parallel_tool_calls` of a chat request. */
  readonly chat: JsonObject;
  /** The tools that are served, in the format of responses. */
  readonly tools: readonly JsonObject[];
  readonly choice: unknown;
  readonly areParallel: boolean;
  /** By the names that the model sees. */
  readonly names: ReadonlyMap<string, ToolName>;
  /** Tools and grammars that have no effect. */
  readonly ignored: readonly string[];
}

const toolsMax = 1024;

/** Tools that OpenAI's servers run, or that only its models know. They are left out: agents send them with every request. */
const hostedTools = [
  ...['web_search', 'web_search_2025_08_26', 'web_search_preview', 'web_search_preview_2025_03_11', 'file_search'],
  ...['code_interpreter', 'image_generation', 'mcp', 'computer', 'computer_use', 'computer_use_preview'],
  ...['local_shell', 'shell', 'apply_patch', 'tool_search', 'programmatic_tool_calling'],
];
const servedTools = ['function', 'custom', 'namespace'];

/** A tool that is served. */
interface ServedTool {
  readonly shown: string;
  readonly name: ToolName;
  /** As a function of a chat request. */
  readonly described: JsonObject;
}

/** The tools of a request while they are read. */
interface ReadTools {
  readonly served: ServedTool[];
  readonly echo: JsonObject[];
  readonly ignored: string[];
}

/**
 * Reads tools and `tool_choice`, which have other forms than in chats: `{type, name, parameters}` without a nested object. The
 * values are checked as those of a chat.
 */
export function readResponseTools(reader: FieldReader): ResponseTools {
  const read: ReadTools = { served: [], echo: [], ignored: [] };
  reader.list('tools', (item, name) => readTool(reader.inside(name, item), item, read), { max: toolsMax });
  const areParallel = reader.boolean('parallel_tool_calls') ?? true;
  const choice = reader.raw('tool_choice', shapes.text, shapes.object) ?? 'auto';
  const chosen = chatChoice(reader, choice, read.served);
  return {
    tools: read.echo,
    choice,
    areParallel,
    names: new Map(read.served.map(({ shown, name }) => [shown, name])),
    ignored: read.ignored,
    chat: {
      ...(read.served.length === 0
        ? {}
        : { tools: chosen.tools.map(({ described }) => ({ type: 'function', function: described })) }),
      tool_choice: chosen.choice,
      parallel_tool_calls: areParallel,
    },
  };
}

function readTool(reader: FieldReader, item: unknown, read: ReadTools): void {
  const type = reader.required('type', reader.name('type'), '"function"');
  if (type === 'namespace') {
    readNamespace(reader, read);
    // Its tools were read.
    read.echo.push(plainJson(item as ExactJson) as JsonObject);
    return;
  }
  const echo = readNamedTool(reader, type, { read });
  if (echo !== undefined) read.echo.push(echo);
}

function readNamespace(reader: FieldReader, read: ReadTools): void {
  const namespace = reader.required('name', reader.name('name'), 'a name');
  reader.string('description');
  const readOne = (tool: FieldReader): void => {
    const type = tool.required('type', tool.name('type'), '"function" or "custom"');
    readNamedTool(tool, type, { read, namespace });
  };
  reader.required('tools', reader.objects('tools', readOne, { max: toolsMax }), 'a list of tools');
  reader.finish();
}

interface ToolPlace {
  readonly read: ReadTools;
  readonly namespace?: string;
}

/** Returns the tool as the response repeats it; undefined: the tool is left out. */
function readNamedTool(reader: FieldReader, type: string, { read, namespace }: ToolPlace): JsonObject | undefined {
  if (hostedTools.includes(type)) {
    read.ignored.push(`${reader.path} (${type})`);
    return undefined;
  }
  if (type !== 'function' && type !== 'custom') {
    const nearest = nearestName(type, new Set([...servedTools, ...hostedTools]));
    const hint = nearest === undefined ? '' : `; did you mean "${nearest}"?`;
    const detail = `: a tool of type ${describeValue(type)} (the server runs no tools; describe functions that the client runs${hint})`;
    throw fieldNotSupported({ parameter: reader.path, detail });
  }
  const name = reader.required('name', reader.name('name'), 'a name');
  const description = reader.string('description');
  reader.ignore(['defer_loading', 'allowed_callers', 'output_schema']);
  const tool = type === 'custom' ? readCustom(reader, description, read) : readFunction(reader, description);
  reader.finish();
  const shown = shownName(name, namespace);
  if (!toolNamePattern.test(shown)) throw reader.invalid('name', toolNameExpected, describeValue(shown));
  if (read.served.some((other) => other.shown === shown)) {
    throw reader.invalid('name', 'a name that no other tool has');
  }
  const toolName = { name, isCustom: type === 'custom', ...(namespace === undefined ? {} : { namespace }) };
  read.served.push({ shown, name: toolName, described: { name: shown, ...tool.described } });
  return { type, name, description: description ?? null, ...tool.echo };
}

interface ToolFields {
  readonly described: JsonObject;
  readonly echo: JsonObject;
}

function readFunction(reader: FieldReader, description: string | undefined): ToolFields {
  const parameters = reader.json('parameters', schemaExpected);
  const strict = reader.boolean('strict');
  return {
    echo: { parameters: parameters ?? null, strict: strict ?? null },
    described: {
      ...(description === undefined ? {} : { description }),
      ...(parameters === undefined ? {} : { parameters }),
      ...(strict === undefined ? {} : { strict }),
    },
  };
}

/**
 * A tool whose input is a text. A regular expression holds for required calls. A grammar in Lark's language is only shown to the
 * model.
 */
function readCustom(reader: FieldReader, description: string | undefined, read: ReadTools): ToolFields {
  const format = reader.object('format');
  const type = format?.choice('type', ['text', 'grammar']) ?? 'text';
  if (type === 'text' || format === undefined) {
    format?.finish();
    return { echo: { format: { type: 'text' } }, described: customFunction(description, undefined) };
  }
  const syntax = format.requiredChoice('syntax', ['regex', 'lark']);
  const definition = format.required('definition', format.string('definition'), 'a text');
  format.finish();
  if (syntax === 'lark') read.ignored.push(`${format.path} (lark)`);
  const rule = `The input follows this ${syntax === 'lark' ? 'Lark grammar' : 'regular expression'}:\n${definition}`;
  const shown = description === undefined ? rule : `${description}\n\n${rule}`;
  return {
    echo: { format: { type, syntax, definition } },
    described: customFunction(shown, syntax === 'regex' ? `^(?:${definition})$` : undefined),
  };
}

const customFunction = (description: string | undefined, pattern: string | undefined): JsonObject => ({
  ...(description === undefined ? {} : { description }),
  parameters: customParameters(pattern),
});

interface ChatChoice {
  readonly choice: string | JsonObject;
  readonly tools: readonly ServedTool[];
}

function chatChoice(body: FieldReader, choice: unknown, tools: readonly ServedTool[]): ChatChoice {
  if (!isJsonObject(choice)) return { choice: choice as string, tools };
  const reader = body.inside('tool_choice', choice);
  const type = reader.required('type', reader.name('type'), '"function", "custom" or "allowed_tools"');
  if (type === 'function' || type === 'custom') {
    const name = reader.required('name', reader.name('name'), 'the name of a tool');
    const namespace = reader.name('namespace');
    reader.finish();
    return { choice: { type: 'function', function: { name: shownName(name, namespace) } }, tools };
  }
  if (type !== 'allowed_tools') {
    const detail = ` with type ${describeValue(type)}: the server runs no tools`;
    throw fieldNotSupported({ parameter: 'tool_choice', detail });
  }
  return readAllowed(reader, tools);
}

/** Only the allowed functions are shown to the model. */
function readAllowed(reader: FieldReader, tools: readonly ServedTool[]): ChatChoice {
  const mode = reader.requiredChoice('mode', ['auto', 'required']);
  const known = new Set(tools.map(({ shown }) => shown));
  const names = reader.objects('tools', (item) => readAllowedName(item, known), { min: 1, max: toolsMax });
  const allowed = new Set(reader.required('tools', names, 'a list of tools'));
  reader.finish();
  return { choice: mode, tools: tools.filter(({ shown }) => allowed.has(shown)) };
}

/** A hosted tool is allowed, but not there. */
function readAllowedName(allowed: FieldReader, known: ReadonlySet<string>): string | undefined {
  const type = allowed.name('type');
  if (type !== undefined && hostedTools.includes(type)) return undefined;
  const name = allowed.required('name', allowed.name('name'), 'the name of a tool');
  const shown = shownName(name, allowed.name('namespace'));
  if (!known.has(shown)) {
    throw allowed.invalid('name', `one of ${[...known].join(', ') || 'no tools'}`);
  }
  allowed.finish();
  return shown;
}

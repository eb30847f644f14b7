import { isJsonObject, type JsonObject } from '../../base/json.ts';
import { describeValue } from '../../core/sampling-read.ts';
import { FieldReader, isObject } from '../field-reader.ts';
import { fieldNotSupported } from '../server-errors.ts';

export interface ResponseTools {
  /** `tools`, `tool_choice` and `parallel_tool_calls` of a chat request. */
  readonly chat: JsonObject;
  /** The tools in the format of responses. */
  readonly tools: readonly JsonObject[];
  readonly choice: unknown;
  readonly areParallel: boolean;
}

const toolsMax = 1024;

/**
 * Reads tools and `tool_choice`, which have other forms than in chats: `{type, name, parameters}` without a nested object. The
 * values are checked as those of a chat.
 */
export function readResponseTools(reader: FieldReader): ResponseTools {
  const tools = reader.list('tools', readTool, { max: toolsMax }) ?? [];
  const areParallel = reader.boolean('parallel_tool_calls') ?? true;
  const choice = reader.raw('tool_choice') ?? 'auto';
  const chosen = chatChoice(choice, tools);
  return {
    tools,
    choice,
    areParallel,
    chat: {
      ...(tools.length === 0 ? {} : { tools: chosen.tools.map(asChatTool) }),
      tool_choice: chosen.choice,
      parallel_tool_calls: areParallel,
    },
  };
}

function readTool(item: unknown, itemName: string): JsonObject {
  const reader = new FieldReader(item, `${itemName}.`);
  const type = reader.required('type', reader.name('type'), '"function"');
  if (type !== 'function') {
    const detail = `: a tool of type ${describeValue(type)} (the server runs no tools; describe functions that the client runs)`;
    throw fieldNotSupported({ parameter: itemName, detail });
  }
  const name = reader.required('name', reader.name('name'), 'a name');
  const description = reader.string('description');
  const parameters = reader.raw('parameters');
  if (parameters !== undefined && !isJsonObject(parameters)) {
    throw reader.invalid('parameters', 'a JSON schema, which is an object', describeValue(parameters));
  }
  const strict = reader.boolean('strict');
  reader.ignore(['defer_loading', 'allowed_callers', 'output_schema']);
  reader.finish();
  return {
    type,
    name,
    description: description ?? null,
    parameters: parameters ?? null,
    strict: strict ?? null,
  };
}

function asChatTool({ type, ...described }: JsonObject): JsonObject {
  const present = Object.entries(described).filter(([, value]) => value !== null);
  return { type: type!, function: Object.fromEntries(present) };
}

interface ChatChoice {
  readonly choice: string | JsonObject;
  readonly tools: readonly JsonObject[];
}

function chatChoice(choice: unknown, tools: readonly JsonObject[]): ChatChoice {
  if (!isObject(choice)) return { choice: choice as string, tools };
  const reader = new FieldReader(choice, 'tool_choice.');
  const type = reader.required('type', reader.name('type'), '"function" or "allowed_tools"');
  if (type === 'function') {
    const name = reader.required('name', reader.name('name'), 'the name of a tool');
    reader.finish();
    return { choice: { type, function: { name } }, tools };
  }
  if (type !== 'allowed_tools') {
    const detail = ` with type ${describeValue(type)}: the server runs no tools`;
    throw fieldNotSupported({ parameter: 'tool_choice', detail });
  }
  return readAllowed(reader, tools);
}

/** Only the allowed functions are shown to the model. */
function readAllowed(reader: FieldReader, tools: readonly JsonObject[]): ChatChoice {
  const mode = reader.required('mode', reader.name('mode'), '"auto" or "required"');
  if (mode !== 'auto' && mode !== 'required') {
    throw reader.invalid('mode', '"auto" or "required"', describeValue(mode));
  }
  const known = new Set(tools.map(({ name }) => name));
  const names = reader.list(
    'tools',
    (item, itemName) => {
      const allowed = new FieldReader(item, `tool_choice.${itemName}.`);
      allowed.ignore(['type']);
      const name = allowed.required('name', allowed.name('name'), 'the name of a tool');
      if (!known.has(name)) {
        throw allowed.invalid('name', `one of ${[...known].join(', ') || 'no tools'}`, describeValue(name));
      }
      allowed.finish();
      return name;
    },
    { min: 1, max: toolsMax },
  );
  const allowed = new Set<unknown>(reader.required('tools', names, 'a list of tools'));
  reader.finish();
  return { choice: mode, tools: tools.filter(({ name }) => allowed.has(name)) };
}

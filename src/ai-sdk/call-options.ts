import type { LanguageModelV3CallOptions, SharedV3Warning } from '@ai-sdk/provider';
import { byEntries } from '../base/by-name.ts';
import type { JsonObject } from '../base/json.ts';
import type { SamplingOptions } from '../core/sampling.ts';
import type { Tool } from '../engine/chat/chat-contract.ts';
import type { ChatRequest } from '../engine/contract.ts';
import { chatMessages } from './messages.ts';
import { readProviderOptions } from './provider-options.ts';

/** A call of the AI SDK as a request for `engine.chat`. */
export interface ReadCall {
  readonly request: ChatRequest;
  /** Settings without effect. */
  readonly warnings: SharedV3Warning[];
}

/** Version 4 of the specification passes it on to models of version 3. */
type CallOptions = LanguageModelV3CallOptions & { readonly reasoning?: string };

/** @throws KvasirError `invalidParameter` if the prompt has parts other than texts, or an option is unknown. */
export function readCall(options: CallOptions): ReadCall {
  const warnings: SharedV3Warning[] = [];
  const given = readProviderOptions(options.providerOptions?.kvasir);
  const tools = readTools(options, warnings);
  const variables = { ...effortVariables(options.reasoning), ...given.request.variables };
  const request: ChatRequest = {
    ...given.request,
    messages: chatMessages(options.prompt),
    params: { ...samplingOptions(options), ...structuredOutputs(options), ...given.params },
    ...tools,
    ...(Object.keys(variables).length === 0 ? {} : { variables }),
  };
  return { request, warnings };
}

function samplingOptions(options: CallOptions): SamplingOptions {
  const given = {
    maxTokens: options.maxOutputTokens,
    temperature: options.temperature,
    // OpenAI takes 0: only the most probable token.
    topP: options.topP === 0 ? Number.MIN_VALUE : options.topP,
    topK: options.topK,
    presencePenalty: options.presencePenalty,
    frequencyPenalty: options.frequencyPenalty,
    stop: options.stopSequences,
    // Seeds of 64 bits: a negative number is the two's complement.
    seed: Number.isSafeInteger(options.seed) ? BigInt.asUintN(64, BigInt(options.seed as number)) : options.seed,
  };
  return byEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}

function readTools(
  { tools = [], toolChoice }: CallOptions,
  warnings: SharedV3Warning[],
): Pick<ChatRequest, 'tools' | 'toolChoice'> {
  const functions = tools.flatMap((tool): Tool[] => {
    if (tool.type === 'function') {
      const { name, description, inputSchema } = tool;
      const parameters = inputSchema as unknown as JsonObject;
      return [
        { type: 'function', function: { name, ...(description === undefined ? {} : { description }), parameters } },
      ];
    }
    warnings.push({ type: 'unsupported', feature: `the provider tool ${tool.id}` });
    return [];
  });
  if (functions.length === 0) return {};
  return {
    tools: functions,
    toolChoice: toolChoice?.type === 'tool' ? { name: toolChoice.toolName } : (toolChoice?.type ?? 'auto'),
  };
}

/** A format without a schema is any JSON object, as with OpenAI. */
function structuredOutputs({ responseFormat }: CallOptions): SamplingOptions {
  if (responseFormat?.type !== 'json') return {};
  const { schema } = responseFormat;
  return { structuredOutputs: schema === undefined ? { jsonObject: true } : { json: schema } };
}

/** The names that templates read. */
function effortVariables(effort: string | undefined): Readonly<Record<string, unknown>> {
  if (effort === undefined || effort === 'provider-default') return {};
  return effort === 'none' ? { enable_thinking: false } : { reasoning_effort: effort };
}

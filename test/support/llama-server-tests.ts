/**
 * Which tests of llama.cpp's server do not apply to this one, and why. Names are those of llama-cpp-python 0.3.36, which
 * `.ci/install-judges` installs. Each other test must pass, and a test with a reason must fail.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { judgesFolder, runJudge } from './judges.ts';

/** Files of `unit`, and tests of other files. */
export const notRun: Readonly<Record<string, string>> = {
  test_basic: 'How llama-server is started: its slots, its page, several addresses, the names in its list of models.',
  test_compat_gcp: "Google's API for predictions: llama-server's own.",
  test_completion: '`/completion` is llama-server’s own endpoint, and the texts are those of its model.',
  test_ctx_shift: 'A context that shifts changes the text of a long answer: the server ends it instead.',
  test_ignore_eos: '`/completion` is llama-server’s own endpoint.',
  test_kv_keep_only_active: 'Slots and their files: the KV cache here has blocks.',
  test_lora: '`/lora-adapters` is llama-server’s own: here `model` names an adapter.',
  test_mcp_servers: 'The server runs no tools.',
  test_metrics: 'Names of metrics are vLLM’s.',
  test_proxy: 'The server fetches no other pages.',
  test_router: 'Several models are served by other flags, and listed in another form.',
  test_security:
    'Tests of `/completion`, of cross-origin headers for any origin, and of the page’s files; the error of a wrong key is OpenAI’s.',
  test_sleep: 'An idle model is unloaded by `--model-idle-timeout`.',
  test_slot_save: 'Slots and their files: the KV cache here has blocks and tiers.',
  test_speculative: 'Flags and metrics of llama-server’s speculation.',
  test_stream: 'A stream that ended is not continued.',
  'test_template::test_reasoning[*-off':
    'It needs a flag of llama-server at start: here a request sets `enable_thinking`.',
  'test_template::test_reasoning[deepseek-ai, [Qwen-QwQ, [CohereForAI':
    'Templates that llama.cpp has changed: without `enable_thinking`, which llama-server always sets, they end the thoughts.',
  'test_chat_completion::test_completion_with_response_format[response_format1':
    'The text of the model decides whether it passes.',
  test_tools_builtin: 'The server runs no tools.',
  test_vision_api: 'The models read text only.',
};

const words = 'It expects the words or the number of tokens of one model.';
const firstDelta =
  'The first delta of a stream has the content "", as OpenAI’s and vLLM’s have. llama-server sends null.';
const telemetry = 'llama-server’s own fields: `__verbose`, `timings`, `prompt_progress`.';
const startFlags = 'It needs a flag of llama-server at start.';
const images = 'The models read text only. The status is 400, where the test expects 500.';
const contextError = 'The error is OpenAI’s `context_length_exceeded`.';
const mixed = 'Inputs are texts or tokens, as in OpenAI’s API: an input that mixes them, or an empty one, is refused.';

const withoutCall =
  'test_tool_call::test_completion_without_tool_call_fast[meta-llama-Llama-3.3-70B-Instruct-128-tools';

/** Names as `file::test`, or the start of such a name with parameters, `file::test[start`. */
export const testsNotPassing: Readonly<Record<string, string>> = {
  'test_chat_completion::test_chat_completion': words,
  'test_chat_completion::test_chat_completion_cached_tokens': words,
  'test_chat_completion::test_chat_completion_stream': firstDelta,
  'test_chat_completion::test_chat_completion_with_openai_library': words,
  'test_chat_completion::test_chat_template': telemetry,
  'test_chat_completion::test_chat_template_assistant_prefill': telemetry,
  'test_chat_completion::test_chat_template_continue_final_message_vllm_compat': telemetry,
  'test_chat_completion::test_apply_chat_template': startFlags,
  'test_chat_completion::test_invalid_chat_completion_req[messages7]':
    'Two answers in a row at the end are a conversation, as in vLLM.',
  'test_chat_completion::test_chat_completion_with_timings_per_token': firstDelta,
  'test_chat_completion::test_logprobs_stream': firstDelta,
  'test_chat_completion::test_context_size_exceeded': contextError,
  'test_chat_completion::test_context_size_exceeded_stream': contextError,
  'test_chat_completion::test_return_progress': telemetry,
  'test_chat_completion::test_verbose_debug': telemetry,
  'test_compat_anthropic::test_anthropic_empty_messages': 'Anthropic’s API refuses a request without messages.',
  'test_compat_anthropic::test_anthropic_tool_result_with_image': images,
  'test_compat_anthropic::test_anthropic_vision_format_accepted': images,
  'test_compat_anthropic::test_anthropic_vision_base64_with_multimodal_model': images,
  'test_compat_oai_responses::test_responses_with_openai_library': words,
  'test_compat_oai_responses::test_responses_stream_with_llama_telemetry': telemetry,
  'test_embedding::test_embedding_content_text_same_as_string': mixed,
  'test_embedding::test_embedding_error_prompt_too_long': startFlags,
  'test_embedding::test_embedding_mixed_input[-False]': mixed,
  'test_embedding::test_embedding_mixed_input[input10': mixed,
  'test_embedding::test_embedding_mixed_input[input3': mixed,
  'test_embedding::test_embedding_mixed_input[input5': mixed,
  'test_embedding::test_embedding_mixed_input[input7': mixed,
  'test_embedding::test_embedding_mixed_input[input8': mixed,
  'test_embedding::test_embedding_mixed_input[input9': mixed,
  'test_embedding::test_embedding_pooling_none': startFlags,
  'test_embedding::test_embedding_pooling_none_oai': startFlags,
  'test_embedding::test_embedding_usage_single': words,
  'test_embedding::test_embedding_usage_multiple': words,
  'test_infill::test_infill_with_input_extra': words,
  'test_infill::test_infill_without_input_extra': words,
  'test_rerank::test_rerank_usage': words,
  'test_template::test_date_inside_prompt':
    'llama-server gives each template today’s date, as `date_string`. Here the template’s own date holds, as in vLLM.',
  'test_tokenize::test_tokenize_with_bos': words,
  [`${withoutCall}0-None-CompletionMode.STREAMED`]: firstDelta,
  [`${withoutCall}1-None-CompletionMode.STREAMED`]: firstDelta,
  [`${withoutCall}2-none-CompletionMode.STREAMED`]: firstDelta,
};

/** The entry of `testsNotPassing` for a test. */
export const entryFor = (test: string): string | undefined =>
  Object.keys(testsNotPassing).find((entry) =>
    entry.includes('[') ? test.startsWith(entry) : test.replace(/\[.*/s, '') === entry,
  );

export interface LlamaServerRun {
  /** A file of `unit`, without its extension. */
  readonly file: string;
  /** pytest's `-k`: which tests of the file. */
  readonly only?: string;
}

/** Runs tests against the server at this port. Returns which passed and which failed with what, by name. */
export async function runLlamaServerTests(port: number, runs: readonly LlamaServerRun[], folder: string) {
  const outcomes = new Map<string, string | undefined>();
  const report = join(folder, `llama-server-${port}.xml`);
  for (const { file, only } of runs) {
    const chosen = ['-m', 'not slow', ...(only === undefined ? [] : ['-k', only])];
    const args = [`unit/${file}.py`, '-q', '-p', 'no:cacheprovider', '--basetemp', join(folder, 'pytest'), ...chosen];
    const env = { DEBUG_EXTERNAL: '1', PORT: String(port), PYTHONDONTWRITEBYTECODE: '1' };
    const cwd = join(judgesFolder, 'llama-server-tests');
    const { output } = await runJudge('pytest', [...args, '--junitxml', report], cwd, env);
    const found = outcomesOf(readFileSync(report, 'utf8'), file);
    if (found.length === 0) throw new Error(`no test of ${file} ran: ${output}`);
    for (const [name, failure] of found) outcomes.set(name, failure);
  }
  return outcomes;
}

function outcomesOf(xml: string, file: string): (readonly [name: string, failure: string | undefined])[] {
  return [...xml.matchAll(/<testcase [^>]*?\bname="([^"]*)"[^>]*?(?:\/>|>(.*?)<\/testcase>)/gs)]
    .filter(([, , inside = '']) => !inside.startsWith('<skipped'))
    .map(([, name, inside]) => [`${file}::${unescaped(name!)}`, inside && unescaped(inside.slice(0, 500))]);
}

const entities: Readonly<Record<string, string>> = { lt: '<', gt: '>', quot: '"', apos: "'", amp: '&' };
const unescaped = (text: string): string =>
  text.replace(/&(lt|gt|quot|apos|amp);/g, (_, name: string) => entities[name]!);

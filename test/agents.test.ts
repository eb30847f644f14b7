/** Requests of real programs (`tools/agents`), by the real API, with the chat templates of real models: the prompts are compared. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type AgentRecording,
  faultsOfPrompt,
  readAgentRecordings,
  sentCalls,
  sentTexts,
} from './support/agent-recordings.ts';
import { expectedPrompts, hasChatTemplates } from './support/chat-templates.ts';
import { isLongForm } from './support/long-form.ts';
import { needs } from './support/needs.ts';
import { type ServedTemplate, serveTemplate } from './support/served-template.ts';
import { temporaryFolder, writeTinyModel } from './support/tiny-model.ts';

const folder = temporaryFolder();
const model = folder.file('letters.gguf');
beforeAll(() => writeTinyModel(model, { architecture: 'llama', type: 'Q8_0', layers: 1, context: 1 << 16 }));
afterAll(() => folder.remove());
const recordings = readAgentRecordings();
const recordingNamed = (name: string): AgentRecording => recordings.find((each) => each.name === name)!;

/** Those that refused or lost texts of agents, and every twelfth other. The long form has all. */
const chosen = [
  'HuggingFaceTB-SmolLM3-3B',
  'Mistral-Small-3.2-24B-Instruct-2506',
  'NVIDIA-Nemotron-Nano-v2',
  'Qwen-Qwen2.5-7B-Instruct',
  'Qwen3.5-4B',
  'google-gemma-2-2b-it',
  'meetkai-functionary-medium-v3.2',
  'meta-llama-Llama-3.1-8B-Instruct',
  'mistralai-Ministral-3-14B-Reasoning-2512',
  'mistralai-Mistral-Nemo-Instruct-2407',
  'openai-gpt-oss-120b',
];
const templates = Object.keys(expectedPrompts.templates).filter(
  (name, i) => isLongForm || i % 12 === 0 || chosen.includes(name),
);

describe(
  'requests of agents',
  needs(hasChatTemplates, 'no templates of llama-cpp-python (.ci/install-chat-templates)'),
  () => {
    it('are those of nine runs of eight programs', () => {
      expect(recordings.map(({ name }) => name)).toEqual([
        'aider',
        'claude-code',
        'claude-code-tool-search',
        'cline',
        'codex',
        'continue',
        'copilot',
        'opencode',
        'qwen-code',
      ]);
    });

    it.each(templates)('reach the model whole, and start with the earlier request: %s', async (name) => {
      await using served = await serveTemplate(model, name);
      const faults: string[] = [];
      for (const recording of recordings)
        for (const fault of await faultsOf(recording, served)) faults.push(`${recording.name}: ${fault}`);
      expect(faults).toEqual([]);
    });
  },
);

async function faultsOf({ requests }: AgentRecording, served: ServedTemplate): Promise<string[]> {
  const faults: string[] = [];
  let earlier = '';
  for (const [i, request] of requests.entries()) {
    const fault = (text: string): number => faults.push(`request ${i}: ${text}`);
    const prompt = await served.promptOf(request).catch((error: Error) => void fault(error.message.slice(0, 200)));
    if (prompt === undefined) continue;
    const sent = sentTexts(request.body);
    faultsOfPrompt(prompt, sent).forEach(fault);
    // A second request has calls; others are for titles.
    if (
      sent.some(({ from }) => from === 'call') &&
      sharedLength(earlier, prompt) < endOfTexts(earlier, requests[i - 1]!)
    )
      fault(`shares only ${sharedLength(earlier, prompt)} of ${earlier.length} characters with the earlier prompt`);
    earlier = prompt;
  }
  return faults;
}

function sharedLength(a: string, b: string): number {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length++;
  return length;
}

/** The end of the last text of a request in its prompt. What follows is the start of an answer. */
function endOfTexts(prompt: string, request: AgentRecording['requests'][number]): number {
  return Math.max(...sentTexts(request.body).map(({ text }) => prompt.lastIndexOf(text) + text.length));
}

describe(
  'an answer that a program sends back',
  needs(hasChatTemplates, 'no templates of llama-cpp-python (.ci/install-chat-templates)'),
  () => {
    /** `thought`, `text` and `calls` as models with these templates write them, after the start of the answer in the prompt. */
    const written: Readonly<
      Record<string, (thought: string, text: string, calls: ReturnType<typeof sentCalls>) => string>
    > = {
      'Qwen-Qwen3-0.6B': (thought, text, calls) =>
        `<think>\n${thought}\n</think>\n\n${text}\n${calls.map(jsonCall).join('\n')}`,
      'Qwen3.5-4B': (thought, text, calls) => `${thought}\n</think>\n\n${text}\n\n${calls.map(taggedCall).join('\n')}`,
      'mistralai-Ministral-3-14B-Reasoning-2512': (_, text, calls) =>
        text + calls.map(({ name, arguments: given }) => `[TOOL_CALLS]${name}[ARGS]${spacedJson(given)}`).join(''),
    };
    const programs = recordings.filter(({ answer }) => answer.calls.length > 0).map(({ name }) => name);

    it.each(Object.keys(written))('is again what the model wrote: %s', async (template) => {
      await using served = await serveTemplate(model, template);
      for (const name of programs) {
        const { answer, requests } = recordingNamed(name);
        const [first, second] = requests.slice(-2);
        const prompt = await served.promptOf(first!);
        const text = written[template]!(answer.thought, answer.text, sentCalls(second!.body));
        expect((await served.promptOf(second!)).slice(0, prompt.length + text.length), name).toBe(prompt + text);
      }
    });

    it.each(['Qwen3.5-4B', 'mistralai-Ministral-3-14B-Reasoning-2512'])(
      'leaves only new tokens to compute: %s',
      async (template) => {
        await using served = await serveTemplate(model, template);
        const [first, second] = recordingNamed('claude-code').requests;
        const { input_tokens: tokens } = await served.usageOf(first!);
        const { cache_read_input_tokens: cached } = await served.usageOf(second!);
        // A block has 16 tokens, and the start of an answer some more.
        expect(cached).toBeGreaterThan(tokens! - 32);
      },
    );
  },
);

/** As templates write it: spaces after commas and colons. */
const spacedJson = (value: object): string =>
  `{${Object.entries(value)
    .map(([name, each]) => `${JSON.stringify(name)}: ${spacedValue(each)}`)
    .join(', ')}}`;
const spacedValue = (value: unknown): string => {
  if (Array.isArray(value)) return `[${value.map(spacedValue).join(', ')}]`;
  return typeof value === 'object' && value !== null ? spacedJson(value) : JSON.stringify(value);
};

type Call = ReturnType<typeof sentCalls>[number];
const jsonCall = (call: Call): string => `<tool_call>\n${spacedJson(call)}\n</tool_call>`;
function taggedCall({ name, arguments: given }: Call): string {
  const parameters = Object.entries(given).map(
    ([key, value]) => `<parameter=${key}>\n${typeof value === 'string' ? value : spacedValue(value)}\n</parameter>\n`,
  );
  return `<tool_call>\n<function=${name}>\n${parameters.join('')}</function>\n</tool_call>`;
}

/**
 * The programs whose requests are kept in `test/data/agents`, with the settings that `docs/agents.md` gives. `origin` is that of the server, `work` the
 * folder in which the program runs; it has the files `a.txt` and `b.txt`. `context` are the tokens of the model's context, as the program is told. `calls` are those that the first answer makes: the first call ends last.
 */
const slow = 'sleep 1; cat a.txt';
const model = 'letters';

export const programs = {
  'claude-code': {
    title: 'Claude Code',
    npm: '@anthropic-ai/claude-code',
    version: '2.1.332',
    env: claudeEnv,
    command: ({ bin, question }) => [bin('claude'), '-p', question, '--allowedTools', 'Bash', 'Read'],
    calls: ({ work }) => [
      ['Bash', { command: slow, description: 'Print a.txt' }],
      ['Read', { file_path: `${work}/b.txt` }],
    ],
  },
  'claude-code-tool-search': {
    title: 'Claude Code',
    npm: '@anthropic-ai/claude-code',
    version: '2.1.332',
    env: (given) => ({ ...claudeEnv(given), ENABLE_TOOL_SEARCH: 'true' }),
    command: ({ bin, question }) => [bin('claude'), '-p', question, '--allowedTools', 'Bash', 'Read', 'ToolSearch'],
    calls: () => [
      ['ToolSearch', { query: 'select:WebFetch,TaskStop', max_results: 5 }],
      ['Bash', { command: 'cat b.txt', description: 'Print b.txt' }],
    ],
  },
  codex: {
    title: 'Codex',
    npm: '@openai/codex',
    version: '0.171.0',
    files: ({ origin, context }) => ({
      '.codex/config.toml': `model = "${model}"
model_provider = "kvasir"
model_context_window = ${context}
[model_providers.kvasir]
name = "Kvasir"
base_url = "${origin}/v1"
wire_api = "responses"
[analytics]
enabled = false
`,
    }),
    command: ({ bin, question }) => [bin('codex'), 'exec', '--skip-git-repo-check', question],
    calls: () => [
      ['exec_command', { cmd: slow }],
      ['exec_command', { cmd: 'cat b.txt' }],
    ],
  },
  opencode: {
    title: 'opencode',
    npm: 'opencode-ai',
    version: '1.18.33',
    files: ({ origin, context }) => ({
      '.config/opencode/opencode.json': JSON.stringify({
        autoupdate: false,
        share: 'disabled',
        model: `kvasir/${model}`,
        provider: {
          kvasir: {
            npm: '@ai-sdk/openai-compatible',
            name: 'Kvasir',
            options: { baseURL: `${origin}/v1` },
            models: { [model]: { name: model, limit: { context, output: 8192 } } },
          },
        },
      }),
    }),
    env: () => ({
      OPENCODE_DISABLE_AUTOUPDATE: '1',
      OPENCODE_DISABLE_MODELS_FETCH: '1',
      OPENCODE_DISABLE_LSP_DOWNLOAD: '1',
      OPENCODE_DISABLE_DEFAULT_PLUGINS: '1',
    }),
    command: ({ bin, question }) => [bin('opencode'), 'run', '--model', `kvasir/${model}`, question],
    calls: ({ work }) => [
      ['bash', { command: slow, description: 'Print a.txt' }],
      ['read', { filePath: `${work}/b.txt` }],
    ],
  },
  'qwen-code': {
    title: 'Qwen Code',
    npm: '@qwen-code/qwen-code',
    version: '0.24.4',
    files: () => ({
      '.qwen/settings.json': JSON.stringify({
        privacy: { usageStatisticsEnabled: false },
        telemetry: { enabled: false },
        general: { enableAutoUpdate: false },
        security: { auth: { selectedType: 'openai' } },
      }),
    }),
    env: ({ origin }) => ({ OPENAI_BASE_URL: `${origin}/v1`, OPENAI_API_KEY: 'none', OPENAI_MODEL: model }),
    command: ({ bin, question }) => [bin('qwen'), '--yolo', '-p', question],
    calls: ({ work }) => [
      ['run_shell_command', { command: slow, is_background: false }],
      ['read_file', { file_path: `${work}/b.txt` }],
    ],
  },
  cline: {
    title: 'Cline',
    npm: 'cline',
    version: '3.0.65',
    env: () => ({ CLINE_TELEMETRY_DISABLED: '1', AI_SDK_LOG_WARNINGS: 'false' }),
    before: ({ bin, origin }) => [bin('cline'), 'auth', '-p', 'openai-compatible', '-k', 'none', '-m', model, '-b', `${origin}/v1`],
    command: ({ bin, question }) => [bin('cline'), '-P', 'openai-compatible', '-m', model, question],
    calls: ({ work }) => [
      ['run_commands', { commands: [slow] }],
      ['read_files', { files: [{ path: `${work}/b.txt` }] }],
    ],
  },
  continue: {
    title: 'Continue',
    npm: '@continuedev/cli',
    version: '1.5.47',
    files: ({ origin, context }) => ({
      'config.yaml': `name: Local
version: 1.0.0
schema: v1
models:
  - name: ${model}
    provider: openai
    model: ${model}
    apiBase: ${origin}/v1
    apiKey: none
    roles: [chat, edit, apply]
    capabilities: [tool_use]
    defaultCompletionOptions:
      contextLength: ${context}
      maxTokens: 8192
`,
    }),
    env: () => ({ CONTINUE_TELEMETRY_ENABLED: '0' }),
    command: ({ bin, home, question }) => [bin('cn'), '--config', `${home}/config.yaml`, '--auto', '-p', question],
    calls: ({ work }) => [
      ['Bash', { command: slow }],
      ['Read', { filepath: `${work}/b.txt` }],
    ],
  },
  copilot: {
    title: 'GitHub Copilot CLI',
    npm: '@github/copilot',
    version: '1.0.102',
    env: ({ origin, context }) => ({
      COPILOT_PROVIDER_BASE_URL: `${origin}/v1`,
      COPILOT_MODEL: model,
      COPILOT_PROVIDER_MAX_PROMPT_TOKENS: String(context - 8192),
      COPILOT_PROVIDER_MAX_OUTPUT_TOKENS: '8192',
      COPILOT_OFFLINE: 'true',
    }),
    command: ({ bin, question }) => [bin('copilot'), '-p', question, '--allow-all-tools', '--no-auto-update'],
    calls: ({ work }) => [
      ['bash', { command: slow, description: 'Print a.txt' }],
      ['view', { path: `${work}/b.txt` }],
    ],
  },
  aider: {
    title: 'aider',
    pypi: 'aider-chat',
    version: '0.86.2',
    env: ({ origin }) => ({ OPENAI_API_BASE: `${origin}/v1`, OPENAI_API_KEY: 'none' }),
    command: ({ bin, question }) => [
      ...[bin('aider'), '--model', `openai/${model}`, '--no-git', '--yes-always', '--no-check-update', '--analytics-disable'],
      ...['--no-show-model-warnings', '--message', question, 'a.txt'],
    ],
    // It edits files by the text of the answer and calls no tools.
    calls: () => [],
  },
};

function claudeEnv({ origin, context }) {
  return {
    ANTHROPIC_BASE_URL: origin,
    ANTHROPIC_API_KEY: 'none',
    ANTHROPIC_MODEL: model,
    ANTHROPIC_DEFAULT_HAIKU_MODEL: model,
    CLAUDE_CODE_MAX_CONTEXT_TOKENS: String(context),
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
    DISABLE_TELEMETRY: '1',
  };
}

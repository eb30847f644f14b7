/** What people write who know vLLM, llama-server or Ollama, and what Kvasir has instead. */
import type { Command } from 'commander';

/** `flag`: the flag of Kvasir; without it, `hint` says what happens here. */
interface PeerFlag {
  readonly names: string;
  readonly flag?: string;
  readonly hint?: string;
}

const always = 'Kvasir does so always. Remove the flag.';

export const peerFlags: readonly PeerFlag[] = [
  { names: '-m --model --model-path --hf-repo -hf -hfr', flag: '--model', hint: 'The model needs no flag here' },
  { names: '-c --ctx-size --context-length --num-ctx', flag: '--max-model-len' },
  { names: '-ngl --n-gpu-layers --num-gpu', flag: '--gpu-layers' },
  { names: '-np --parallel', flag: '--max-num-seqs' },
  { names: '-b --batch-size -ub --ubatch-size', flag: '--max-num-batched-tokens' },
  { names: '-t -tb --threads-batch', flag: '--threads' },
  { names: '-ctk -ctv --cache-type-k --cache-type-v', flag: '--kv-cache-dtype' },
  { names: '-a --alias', flag: '--served-model-name' },
  { names: '-md --model-draft --spec-draft-model --speculative-model', flag: '--spec-model' },
  { names: '--draft --draft-max --num-speculative-tokens', flag: '--spec-tokens' },
  { names: '--lora --enable-lora', flag: '--lora-modules' },
  { names: '--models-dir --download-dir', flag: '--model-dir' },
  { names: '--reasoning-format --enable-reasoning', flag: '--reasoning-parser' },
  { names: '--swap-space --cpu-offload-gb -cram --cache-ram', flag: '--kv-offloading-size' },
  { names: '--kv-cache-memory-bytes', flag: '--kv-cache-memory' },
  { names: '--chat-template-file', flag: '--chat-template' },
  { names: '--prefix-caching --no-cache-prompt', flag: '--no-enable-prefix-caching' },
  { names: '-p', flag: '--prompt' },
  { names: '-n --n-predict --predict', flag: '--max-tokens' },
  { names: '--temp', flag: '--temperature' },
  { names: '-s', flag: '--seed' },
  {
    names: '--gpu-memory-utilization',
    flag: '--kv-cache-memory',
    hint: 'It is the size of the KV pool in bytes, like 8GiB',
  },
  {
    names: '-tp --tensor-parallel-size -dp --data-parallel-size -sm --split-mode -ts --tensor-split',
    hint: 'A model runs on at most one GPU. --pipeline-parallel-size divides its layers over processes.',
  },
  { names: '-pp', flag: '--pipeline-parallel-size' },
  { names: '--enable-auto-tool-choice --jinja', hint: always },
  { names: '--enable-chunked-prefill -cb --cont-batching --metrics --slots', hint: always },
  { names: '--embedding --embeddings --rerank --reranking --task --runner', hint: 'The model file says it.' },
  { names: '--dtype -q --quantization --load-format --tokenizer --hf-config-path', hint: 'The GGUF file says it.' },
  {
    names: '--trust-remote-code --enforce-eager -fa --flash-attn',
    hint: 'Kvasir has no such choice. Remove the flag.',
  },
  { names: '--mlock', hint: 'Weights that are not mapped are in memory from the start (--no-mmap). Remove the flag.' },
  { names: '--mmproj --limit-mm-per-prompt', hint: 'Kvasir reads no images.' },
  { names: '--keepalive --keep-alive', flag: '--model-idle-timeout' },
];

/** Commands of the others. */
export const peerCommands: ReadonlyMap<string, string> = new Map([
  ['run', 'Write: kvasir chat MODEL'],
  ['ps', 'Ask the server which models it has loaded: curl http://127.0.0.1:8000/api/ps'],
  ['stop', 'Stop the server with Ctrl-C or SIGTERM. --model-idle-timeout unloads models without requests.'],
  ['version', 'Write: kvasir --version'],
  ['show', 'Write: kvasir size MODEL'],
  ['create', 'There is nothing to create: kvasir serve runs GGUF files, and --config has settings.'],
  ['cp', 'There is nothing to copy: --served-model-name gives a model further names.'],
  ['ls', 'Write: kvasir list'],
  ['delete', 'Write: kvasir rm MODEL'],
  ['start', 'Write: kvasir serve MODEL'],
  ['server', 'Write: kvasir serve MODEL'],
  ['complete', 'Write: kvasir generate --model MODEL --prompt TEXT'],
  ['collect-env', 'Write: kvasir doctor'],
  ['launch', 'Start the server with kvasir serve, and the agent with the address of the server.'],
]);

/** A message of commander, with a hint if the unknown name is that of another program. */
export function withPeerHint(message: string, command: Command): string {
  const [, kind, name] = /^error: unknown (option|command) '([^']+)'/.exec(message) ?? [];
  if (name === undefined) return message;
  const hint = kind === 'option' ? flagHint(name.split('=')[0]!, command) : commandHint(name);
  // Instead of commander's guess, which knows only how names are spelled.
  return hint === undefined ? message : `error: unknown ${kind} '${name}'. ${hint}\n`;
}

function flagHint(name: string, command: Command): string | undefined {
  const { flag, hint } = peerFlags.find(({ names }) => names.split(' ').includes(name)) ?? {};
  const isModel = flag === '--model';
  // Before a command is named, the flags are those of a server.
  if (command.parent === null && flag !== undefined)
    return `Write the command first: kvasir serve MODEL${isModel ? '' : ` ${flag} ...`}`;
  if (flag === undefined) return command.parent === null || hasFlag(command, '--max-model-len') ? hint : undefined;
  const option = command.options.find(({ long }) => long === flag);
  if (option !== undefined) return `Write ${option.flags}.${isModel || hint === undefined ? '' : ` ${hint}.`}`;
  if (!isModel || command.registeredArguments.length === 0) return undefined;
  const example = /^(-hf|--hf)/.test(name) ? 'hf:owner/repository:Q8_0' : 'model.gguf';
  return `${hint}: kvasir ${command.name()} ${example}`;
}

function commandHint(name: string): string | undefined {
  if (/\.gguf$|^hf:|\//i.test(name)) return `Write: kvasir serve ${name}`;
  return peerCommands.get(name);
}

const hasFlag = (command: Command, flag: string): boolean => command.options.some(({ long }) => long === flag);

import { readFileSync } from 'node:fs';
import { Command } from 'commander';
import { formatBytes } from '../base/bytes.ts';
import { withoutUndefined } from '../base/field-reader.ts';
import { formatTable } from '../base/table.ts';
import { integerFrom, oneOf, repeated } from './args.ts';
import type { CliContext, ExitCode } from './context.ts';
import { callServer } from './server-call.ts';

interface CommonFlags {
  readonly url: string;
  readonly apiKey?: string;
  readonly servedModel?: string;
  readonly cacheSalt?: string;
  readonly json?: boolean;
}

interface PromptFlags extends CommonFlags {
  readonly promptFile?: string;
}

interface PlacesFlags extends PromptFlags {
  readonly place?: readonly string[];
}

interface Work {
  readonly blocks: number;
  readonly bytes: number;
  readonly failed: number;
  readonly dropped?: number;
  readonly in_use?: number;
}

interface Pin {
  readonly name: string;
  readonly blocks: number;
  readonly cached_blocks: number;
  readonly ttl_seconds: number;
}

/** Clearing a large tier takes minutes. */
const orderTimeoutMs = 600_000;

/** `kvasir tiers clear`, `pin`, `unpin`, `prefetch`, `lookup`, `remove`, `attach` and `detach`: orders to a running server. */
export function addTierOrders(tiers: Command, context: CliContext, exit: (code: ExitCode) => void): void {
  const order = (name: string, summary: string): Command => {
    const command = new Command(name).summary(summary).description(summary);
    tiers.addCommand(command);
    return (
      command
        .option('--url <url>', 'address of the server', 'http://127.0.0.1:8000')
        .option('--served-model <name>', 'model of a server with several, or the name of a LoRA adapter')
        // The options of `kvasir tiers` itself: its key, and whether it prints JSON.
        .configureHelp({ showGlobalOptions: true })
    );
  };
  const ofPrompt = (name: string, summary: string): Command =>
    order(name, summary)
      .argument('[prompt]', 'text of the prompt')
      .option('--prompt-file <file>', 'file with the text, - for standard input')
      .option('--cache-salt <salt>', 'cache salt of the requests');
  const run = async <Answer>(
    command: Command,
    call: { readonly method: 'POST' | 'PUT' | 'DELETE'; readonly path: string; readonly body: object },
    describe: (answer: Answer) => string,
  ): Promise<void> => {
    const { url, apiKey, json, servedModel: model } = command.optsWithGlobals<CommonFlags>();
    const path = model === undefined ? call.path : `${call.path}?model=${encodeURIComponent(model)}`;
    const body = { ...call.body, ...withoutUndefined({ model }) };
    const answer = await callServer({ ...call, url, path, body, apiKey, timeoutMs: orderTimeoutMs });
    context.stdout.write(json === true ? `${JSON.stringify(answer, undefined, 2)}\n` : describe(answer as Answer));
    exit(0);
  };
  const promptBody = (prompt: string | undefined, { promptFile, cacheSalt }: PromptFlags): object => {
    if ((prompt === undefined) === (promptFile === undefined))
      tiers.error('error: give the text of the prompt, or --prompt-file');
    const text = promptFile === undefined ? prompt : readFileSync(promptFile === '-' ? 0 : promptFile, 'utf8');
    return { prompt: text, ...withoutUndefined({ cache_salt: cacheSalt }) };
  };

  ofPrompt('lookup', 'show how many tokens of a prompt are in the pool and in each tier').action(
    (prompt: string | undefined, flags: PromptFlags, command: Command) =>
      run(command, { method: 'POST', path: '/cache/lookup', body: promptBody(prompt, flags) }, describeLookup),
  );
  ofPrompt('prefetch', 'load the KV of a prompt before its request comes')
    .addOption(oneOf('--to <place>', 'where it is loaded to', ['pool', 'host'], 'pool'))
    .action((prompt: string | undefined, flags: PromptFlags & { readonly to: string }, command: Command) => {
      const body = { ...promptBody(prompt, flags), to: flags.to };
      return run(command, { method: 'POST', path: '/cache/prefetch', body }, describePrefetch);
    });
  ofPrompt('pin', 'keep the KV of a prompt in the pool as long as other blocks can be evicted, or in a tier')
    .option('--ttl <seconds>', 'until no request has used it for so long', integerFrom(1, 366 * 86_400), 3600)
    .option('--place <name>', 'the pool or a tier, host memory or a disk; may be repeated (default: pool)', repeated)
    .action((prompt: string | undefined, flags: PlacesFlags & { readonly ttl: number }, command: Command) => {
      const body = {
        ...promptBody(prompt, flags),
        ttl_seconds: flags.ttl,
        ...withoutUndefined({ places: flags.place }),
      };
      return run(command, { method: 'POST', path: '/cache/pin', body }, describePin);
    });
  ofPrompt('unpin', 'end a pin')
    .option('--pin <name>', 'name of the pin, instead of the prompt')
    .action((prompt: string | undefined, flags: PromptFlags & { readonly pin?: string }, command: Command) => {
      const body = flags.pin === undefined ? promptBody(prompt, flags) : { pin: flags.pin };
      return run<{ readonly unpinned: string | null }>(
        command,
        { method: 'POST', path: '/cache/unpin', body },
        (answer) => (answer.unpinned === null ? 'There was no such pin.\n' : `${answer.unpinned} has ended.\n`),
      );
    });
  ofPrompt('remove', 'remove the KV of a prompt from the pool and the tiers')
    .option('--place <name>', 'only from the pool or this tier; may be repeated', repeated)
    .action((prompt: string | undefined, flags: PlacesFlags, command: Command) => {
      const body = { ...promptBody(prompt, flags), ...withoutUndefined({ places: flags.place }) };
      return run<{ readonly removed: Readonly<Record<string, Work>> }>(
        command,
        { method: 'DELETE', path: '/cache/blocks', body },
        ({ removed }) =>
          Object.entries(removed)
            .map(([place, work]) => describeWork(place, work))
            .join(''),
      );
    });
  order('clear', 'remove the blocks of a tier: all, those of a cache salt, or old ones')
    .argument('<tier>', 'name of the tier, as kvasir tiers shows it')
    .option('--cache-salt <salt>', 'only the blocks of this cache salt')
    .option('--older-than <seconds>', 'only blocks that were stored or used longer ago', integerFrom(0))
    .action((tier: string, flags: CommonFlags & { readonly olderThan?: number }, command: Command) => {
      const body = withoutUndefined({ cache_salt: flags.cacheSalt, older_than_seconds: flags.olderThan });
      const path = `/tiers/${encodeURIComponent(tier)}/clear`;
      return run<Work>(command, { method: 'POST', path, body }, (work) => describeWork(tier, work));
    });
  order('attach', 'attach a tier below the others')
    .argument('<name>', 'name of the tier')
    .argument('<tier>', 'tier as for --kv-tier, like disk:/var/cache/kvasir:100GiB')
    .action((name: string, tier: string, _: CommonFlags, command: Command) =>
      run(command, { method: 'PUT', path: `/tiers/${encodeURIComponent(name)}`, body: { tier } }, describeTiers),
    );
  order('detach', 'detach a tier; its blocks stay where they are')
    .argument('<name>', 'name of the tier')
    .action((name: string, _: CommonFlags, command: Command) =>
      run(command, { method: 'DELETE', path: `/tiers/${encodeURIComponent(name)}`, body: {} }, describeTiers),
    );
}

interface LookupAnswer {
  readonly prompt_tokens: number;
  readonly cached_tokens: number;
  readonly tokens: Readonly<Record<string, number>>;
  readonly unanswered: readonly string[];
}

function describeLookup({ prompt_tokens: prompt, cached_tokens: cached, tokens, unanswered }: LookupAnswer): string {
  const rows = Object.entries(tokens).map(([place, count]) => [place, count]);
  const trouble = unanswered.map((tier) => `${tier} did not answer for some blocks.\n`).join('');
  return `${formatTable(['place', 'tokens'], rows)}A request with this prompt of ${prompt} tokens computes ${prompt - cached}.\n${trouble}`;
}

interface PrefetchAnswer {
  readonly to: string;
  readonly prompt_tokens: number;
  readonly tokens_before: number;
  readonly tokens_after: number;
  readonly failed_blocks: number;
}

function describePrefetch({ to, ...answer }: PrefetchAnswer): string {
  const { prompt_tokens: prompt, tokens_before: before, tokens_after: after, failed_blocks: failed } = answer;
  const where = to === 'pool' ? 'the pool' : 'host memory';
  const trouble = failed === 0 ? '' : `${failed} blocks could not be loaded.\n`;
  return `${after} of ${prompt} tokens are in ${where} now; before, ${before} were.\n${trouble}`;
}

interface PinAnswer {
  readonly name: string | null;
  readonly needed_blocks: number;
  readonly pin: Pin | null;
  readonly tiers: Readonly<Record<string, { readonly blocks: number; readonly stored_blocks: number }>>;
}

function describePin({ name, needed_blocks: needed, pin, tiers }: PinAnswer): string {
  const inPool =
    pin === null
      ? []
      : [
          `${name} has ${pin.blocks} of the ${needed} blocks of the prompt, of which ${pin.cached_blocks} are in the pool. It ends after ${pin.ttl_seconds} s without use.\n`,
        ];
  const inTiers = Object.entries(tiers).map(
    ([tier, { blocks, stored_blocks: stored }]) =>
      `${tier} does not evict ${blocks} of the ${needed} blocks of ${name}. It has ${stored} of them now.\n`,
  );
  if (inPool.length + inTiers.length > 0) return [...inPool, ...inTiers].join('');
  return 'Nothing is pinned: the prompt has no full block, or other pins have the whole share.\n';
}

function describeWork(place: string, { blocks, bytes, failed, dropped = 0, in_use: inUse = 0 }: Work): string {
  const more = [
    ...(inUse > 0 ? [`${inUse} are in use and stay`] : []),
    ...(dropped > 0 ? [`${dropped} waited to be written and are dropped`] : []),
    ...(failed > 0 ? [`${failed} failed and may still be there`] : []),
  ];
  return `${place}: ${blocks} blocks (${formatBytes(bytes)}) are removed${more.map((part) => `, ${part}`).join('')}.\n`;
}

const describeTiers = ({ tiers }: { readonly tiers: readonly string[] }): string =>
  `The tiers are ${tiers.join(', ')}.\n`;

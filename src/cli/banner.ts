import { takeFaults } from '../connector/fault/faulty-connector.ts';
import { isMulti, readMultiSettings } from '../connector/multi/multi-settings.ts';
import { readOffloadingSettings } from '../connector/offloading/offloading-settings.ts';
import { describeTier } from '../connector/offloading/tier-spec.ts';
import type { AsyncEngine, EngineEvent } from '../engine/contract.ts';
import type { EngineFlags } from './args.ts';

export interface BannerFlags extends EngineFlags {
  readonly host: string;
  readonly apiKey?: readonly string[];
  readonly apiKeyLimits?: object;
  readonly sslCertfile?: string;
}

export function servedFields(engine: AsyncEngine, flags: BannerFlags, port: number): EngineEvent['fields'] {
  const { name, architecture, maxModelLen } = engine.model;
  return {
    model: name,
    architecture,
    maxModelLen,
    blocks: engine.stats().blocks.total,
    address: addressOf(flags, port),
    ...Object.fromEntries(extrasOf(engine, flags).map(([name, texts]) => [name, texts.join('; ')])),
  };
}

/** The address for a client on this machine. */
export function addressOf({ host, sslCertfile }: BannerFlags, port: number): string {
  const scheme = sslCertfile === undefined ? 'http' : 'https';
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '[::1]' : host;
  return `${scheme}://${reachable.includes(':') && !reachable.startsWith('[') ? `[${reachable}]` : reachable}:${port}`;
}

export function banner(engine: AsyncEngine, flags: BannerFlags, port: number, version: string): string {
  const { name, architecture, maxModelLen, makesNoText } = engine.model;
  const address = addressOf(flags, port);
  const key = flags.apiKey === undefined && flags.apiKeyLimits === undefined ? '' : `-H 'Authorization: Bearer <key>' `;
  const [path, body] = exampleOf(engine.model);
  return `
  Kvasir ${version}
  model     ${name} (${architecture})
  context   ${maxModelLen} tokens
  KV pool   ${engine.stats().blocks.total} blocks of ${flags.blockSize} tokens
${bannerExtras(engine, flags)}  address   ${address}${flags.host === '127.0.0.1' ? '  (this machine only; --host 0.0.0.0 for all)' : ''}

  Try it:
  curl ${address}/v1/${path} -H 'Content-Type: application/json' ${key}-d '${body}'

${makesNoText === true ? '' : `  Chat in a browser: ${address}\n`}  Press Ctrl-C to stop.

`;
}

function exampleOf({
  hasChatTemplate,
  makesNoText,
  scores,
}: AsyncEngine['model']): readonly [path: string, body: string] {
  if (scores !== undefined)
    return ['rerank', '{"query":"What do foxes eat?","documents":["Foxes eat mice.","The sky is blue."]}'];
  if (makesNoText === true) return ['embeddings', '{"input":["Foxes eat mice.","The sky is blue."]}'];
  return hasChatTemplate
    ? ['chat/completions', '{"messages":[{"role":"user","content":"Tell me a story."}],"max_tokens":100}']
    : ['completions', '{"prompt":"Once upon a time","max_tokens":100}'];
}

/** The lines for the file's description, attention, layers, ranks and connector, if there is something to report. */
const bannerExtras = (engine: AsyncEngine, flags: BannerFlags): string =>
  extrasOf(engine, flags)
    .flatMap(([name, texts]) => texts.map((text) => `  ${labels[name].padEnd(9)} ${text}\n`))
    .join('');

const labels = {
  about: 'about',
  attention: 'attention',
  placement: 'layers',
  ranks: 'ranks',
  connector: 'connector',
  tiers: 'KV tier',
  kvKeys: 'KV keys',
};
type Extra = readonly [name: keyof typeof labels, texts: readonly string[]];

function extrasOf({ model: { description, attention, placement } }: AsyncEngine, flags: BannerFlags): Extra[] {
  const { kvTransferConfig: transfer, pipelineParallelSize: ranks } = flags;
  const extras: Extra[] = [];
  if (description !== undefined) extras.push(['about', [description]]);
  if (attention !== undefined) extras.push(['attention', [attention]]);
  if (placement !== undefined) extras.push(['placement', [placement]]);
  if (ranks > 1) extras.push(['ranks', [`${ranks}, each with its part of the layers`]]);
  if (transfer === undefined) return extras;
  const { kvConnector, kvRole, kvLoadFailurePolicy, kvConnectorExtraConfig, kvTransferKeyFile } = transfer;
  const { shared_storage_path: path } = kvConnectorExtraConfig;
  const place = typeof path === 'string' ? `, in ${path}` : '';
  const list = isMulti(transfer)
    ? ` of ${readMultiSettings(transfer)
        .map((one) => one.kvConnector)
        .join(', ')}`
    : '';
  extras.push([
    'connector',
    [`${kvConnector} (${kvRole})${list}${place}; load failure policy: ${kvLoadFailurePolicy}`],
  ]);
  if (kvConnector === 'OffloadingConnector') {
    const { host, secondaries } = readOffloadingSettings(takeFaults(transfer).config);
    extras.push(['tiers', [host, ...secondaries.map((named) => named.spec)].map(describeTier)]);
  }
  if (kvTransferKeyFile !== undefined)
    extras.push(['kvKeys', [`${kvTransferKeyFile}; blocks without their MAC are refused`]]);
  return extras;
}

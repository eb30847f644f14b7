import { formatBytes } from '../../base/bytes.ts';
import { formatTable } from '../../base/table.ts';
import { describeShare, type GpuShare } from './gpu-share.ts';
import type { GroupNeeds } from './memory-needs.ts';
import type { Fit, SizeReport } from './size-report.ts';

/** Less memory than this is not worth a tier. */
const WORTH_A_TIER = 256 * 1024 ** 2;

/** The report for people. */
export function describeSize(report: SizeReport): string {
  const { groups, blockBytes, maxModelLen } = report;
  const facts = [
    ['model', `${report.model} (${report.architecture}), context of ${count(report.contextLength)} tokens`],
    ['weights', formatBytes(report.weightBytes)],
    ['process', `about ${formatBytes(report.processBytes)}`],
    ['block', `${formatBytes(blockBytes)} of ${report.kvCacheDtype}`],
    ['stored KV', `${formatBytes(report.storedBytesPerToken)} per token in a tier`],
    ...(report.stateBytesPerSequence === 0
      ? []
      : [['states', `${formatBytes(report.stateBytesPerSequence)} of states per sequence`]]),
  ].map(([name = '', value]) => `${name.padEnd(12)}${value}\n`);
  const groupTable = formatTable(
    ['KV group', 'layers', 'tokens of a block', 'bytes per token', 'unused', `blocks of ${count(maxModelLen)} tokens`],
    groups.map((group, index) => groupCells(group, index, blockBytes)),
  );
  const poolTable = formatTable(
    ['sequences at once', 'tokens of each', 'blocks', 'pool', 'with weights and process'],
    report.pools.map(({ sequences, tokens, blocks, bytes }) => [
      sequences,
      count(tokens),
      count(blocks),
      formatBytes(bytes),
      formatBytes(bytes + report.weightBytes + report.processBytes),
    ]),
  );
  const tierTable = formatTable(
    ['tier', 'tokens', `sequences of ${count(maxModelLen)} tokens`],
    report.tiers.map(({ bytes, tokens, sequences }) => [formatBytes(bytes), count(tokens), sequences.toFixed(1)]),
  );
  const gpu = report.gpu === undefined ? '' : `\n${describeShare(report.gpu)}`;
  const fit = report.fit === undefined ? '' : `\n${describeFit(report.fit, report)}`;
  return `${facts.join('')}\n${groupTable}\n${poolTable}\n${tierTable}${gpu}${fit}`;
}

function groupCells(group: GroupNeeds, index: number, blockBytes: number): string[] {
  const { kind, window, layers, blockTokens, bytesPerToken, usedBytesPerBlock, blocksPerSequence } = group;
  return [
    `${index} ${kind}${window === undefined ? '' : ` of ${count(window)}`}`,
    count(layers),
    count(blockTokens),
    formatBytes(bytesPerToken),
    `${Math.round(100 * (1 - usedBytesPerBlock / blockBytes))} %`,
    count(blocksPerSequence),
  ];
}

function describeFit(fit: Fit, { gpu, maxModelLen, maxNumSeqs }: SizeReport): string {
  const memory = [
    ...(fit.memoryBytes === undefined ? [] : [formatBytes(fit.memoryBytes)]),
    ...(gpu?.blocksMax === undefined ? [] : [`${formatBytes(gpu.device?.freeBytes ?? 0)} on the GPU`]),
  ].join(' and ');
  if (fit.longest === 0) return `${memory} is too little: weights and process leave no room for a block.\n`;
  const many =
    fit.longest < maxModelLen
      ? `The longest sequence has ${count(fit.longest)} tokens: use --max-model-len ${fit.longest}.`
      : `${count(fit.sequences)} sequences of ${count(maxModelLen)} tokens run at the same time, of at most ${count(maxNumSeqs)} (--max-num-seqs).`;
  const { leftBytes = 0 } = fit;
  const left =
    leftBytes >= WORTH_A_TIER ? ` ${formatBytes(leftBytes)} remain, for example for --kv-offloading-size.` : '';
  return `With ${memory}: ${layersFlag(gpu)}--kv-cache-memory ${fit.poolBytes} (${formatBytes(fit.poolBytes)}). ${many}${left}\n`;
}

/** `auto` would choose by the pool that is given. */
const layersFlag = (gpu: GpuShare | undefined): string =>
  gpu?.blocksMax === undefined ? '' : `--gpu-layers ${gpu.layers} `;

const count = (value: number): string => value.toLocaleString('en');

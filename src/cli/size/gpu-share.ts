import { formatBytes } from '../../base/bytes.ts';
import { formatTable } from '../../base/table.ts';
import type { GpuLayers } from '../../engine/options.ts';
import type { GpuMemory } from '../../ggml/device.ts';
import type { Division } from '../../runner/division.ts';

/** What of a model is on a GPU. */
export interface GpuShare {
  /** Absent without a GPU. */
  readonly device?: GpuMemory;
  /** Free memory that an engine leaves for the buffers of a step and for other programs. Without a GPU, the most that it leaves. */
  readonly reserveBytes: number;
  readonly layerCount: number;
  /** On the GPU. 0: not even one fits. */
  readonly layers: number;
  /** The option that decides it. */
  readonly gpuLayers: GpuLayers;
  /** With these layers; absent if there are none. */
  readonly division?: Division;
  /** KV blocks that fit beside the weights; absent without the free memory. */
  readonly blocksMax?: number;
  /** Tokens whose KV must fit beside the weights if `auto` chooses: `Division.poolBytes`. */
  readonly poolTokens: number;
  /** For each number of layers that is possible, from all layers down. */
  readonly divisions: readonly Division[];
}

/** Free memory of a GPU with which `auto` chooses at least this division. */
const neededFor = ({ onGpu, poolBytes }: Division, { reserveBytes }: GpuShare): number =>
  onGpu.weightBytes + poolBytes + reserveBytes;

/** The part of the report of `kvasir size` about the GPU, as text. */
export function describeShare(share: GpuShare): string {
  const { device, reserveBytes, division, divisions, poolTokens } = share;
  const reserve = `${formatBytes(reserveBytes)} stay free for the buffers of a step and for other programs`;
  const gpu =
    device === undefined
      ? `none was found: with --gpu-memory 24GiB this shows what fits on another one. There, up to ${reserve}`
      : `${device.description}, ${memoryOf(device)}, of which ${reserve}`;
  const lines = [
    ['GPU', gpu],
    ['layers', describeLayers(share)],
  ].map(([name = '', value]) => `${name.padEnd(12)}${value}\n`);
  const table = formatTable(
    [
      '--gpu-layers',
      'weights on GPU',
      'on CPU',
      `KV of ${poolTokens.toLocaleString('en')} tokens`,
      'free memory needed',
    ],
    chosenRows(divisions, division).map((one) => [
      one.layers,
      formatBytes(one.onGpu.weightBytes),
      formatBytes(one.onCpu.weightBytes),
      formatBytes(one.poolBytes),
      formatBytes(neededFor(one, share)),
    ]),
  );
  return `${lines.join('')}\n${table}`;
}

const memoryOf = ({ freeBytes, totalBytes }: GpuMemory): string =>
  freeBytes === undefined ? 'free memory unknown' : `${formatBytes(freeBytes)} free of ${formatBytes(totalBytes)}`;

function describeLayers({ layers, layerCount, gpuLayers, device }: GpuShare): string {
  if (layers === 0) return 'none fits, so the CPU computes all. With --device gpu, the engine does not start';
  const which = layers === layerCount ? `all ${layerCount}` : `the last ${layers} of ${layerCount}`;
  const chosen = gpuLayers === 'auto' && device?.freeBytes !== undefined ? ', as many as fit' : '';
  return `${which} on the GPU${chosen} (--gpu-layers ${gpuLayers})`;
}

/** About four, and the chosen one. */
function chosenRows(divisions: readonly Division[], chosen: Division | undefined): readonly Division[] {
  const stride = Math.max(1, Math.ceil(divisions.length / 4));
  return divisions.filter((one, index) => index % stride === 0 || index === divisions.length - 1 || one === chosen);
}

/** A GPU that is not here. The largest tensor of its driver is not known. */
export const gpuWith = (freeBytes: number): GpuMemory => ({
  description: 'a GPU',
  freeBytes,
  totalBytes: freeBytes,
  tensorBytesMax: Number.MAX_SAFE_INTEGER,
});

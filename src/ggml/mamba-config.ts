import type { GgufFile } from './gguf.ts';

/** The shape of a layer with the recurrence of Mamba-2. */
export interface MambaConfig {
  /** Tokens that the convolution of a channel reads, its own token included. */
  readonly taps: number;
  readonly heads: number;
  /** Channels of a head. */
  readonly headDim: number;
  /** Numbers of a channel's state. */
  readonly stateSize: number;
  /** Heads that share B and C are a group. */
  readonly groups: number;
}

/** Channels of all heads. */
export const mambaWidth = ({ heads, headDim }: MambaConfig): number => heads * headDim;

/** Channels of the convolution: x of all heads, then B and C of all groups. */
export const mambaChannels = (config: MambaConfig): number => mambaWidth(config) + 2 * config.groups * config.stateSize;

/** F32 numbers of a layer's state: the rows of the convolution, and the state of each channel of x. */
export const mambaElements = (config: MambaConfig): number =>
  (config.taps - 1) * mambaChannels(config) + mambaWidth(config) * config.stateSize;

export function readMambaConfig({ metadata }: GgufFile, architecture: string): MambaConfig {
  const read = (name: string, most: number): number => {
    const key = `${architecture}.ssm.${name}`;
    const value = metadata.require(key, metadata.u32(key));
    if (value < 1 || value > most) throw metadata.invalid(key, `between 1 and ${most}`);
    return value;
  };
  const width = read('inner_size', 1 << 24);
  const heads = read('time_step_rank', 1 << 16);
  const groups = read('group_count', 1 << 16);
  const divides = (name: string, divisor: number, of: string, number: number): void => {
    if (number % divisor === 0) return;
    throw metadata.invalid(`${architecture}.ssm.${name}`, `a divisor of ${of}, which is ${number}`);
  };
  divides('time_step_rank', heads, 'inner_size', width);
  divides('group_count', groups, 'time_step_rank', heads);
  const taps = read('conv_kernel', 64);
  if (taps < 2) throw metadata.invalid(`${architecture}.ssm.conv_kernel`, 'between 2 and 64');
  return { taps, heads, headDim: width / heads, stateSize: read('state_size', 1 << 16), groups };
}

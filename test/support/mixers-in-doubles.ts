/** The mixers evaluated in double precision, token by token. States are changed in place. */

const softplus = (x: number): number => Math.log1p(Math.exp(x));
const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));

/** `state`: the rows before x, oldest first; `kernel`: `[channels][taps]`. Returns y of one row. */
export function convolveInDoubles(
  state: Float64Array,
  x: Float32Array,
  { kernel, bias, silu }: { readonly kernel: Float32Array; readonly bias?: Float32Array; readonly silu: boolean },
): Float64Array {
  const channels = x.length;
  const taps = kernel.length / channels;
  const y = new Float64Array(channels);
  for (let channel = 0; channel < channels; channel++) {
    let sum = bias?.[channel] ?? 0;
    for (let tap = 0; tap < taps; tap++) {
      const source = tap === taps - 1 ? x[channel]! : state[tap * channels + channel]!;
      sum += kernel[channel * taps + tap]! * source;
    }
    y[channel] = silu ? sum * sigmoid(sum) : sum;
  }
  state.copyWithin(0, channels);
  state.set(x, (taps - 2) * channels);
  return y;
}

export interface ScanToken {
  readonly x: Float32Array;
  readonly b: Float32Array;
  readonly c: Float32Array;
  readonly dt: Float32Array;
}

/** `state`: `[heads][headDim][stateSize]`. */
export function scanInDoubles(
  state: Float64Array,
  { x, b, c, dt }: ScanToken,
  weights: {
    readonly a: Float32Array;
    readonly d: Float32Array;
    readonly dtBias: Float32Array;
    readonly groups: number;
  },
): Float64Array {
  const heads = dt.length;
  const headDim = x.length / heads;
  const stateSize = b.length / weights.groups;
  const y = new Float64Array(x.length);
  for (let head = 0; head < heads; head++) {
    const group = Math.floor((head * weights.groups) / heads);
    const step = softplus(dt[head]! + weights.dtBias[head]!);
    const decay = Math.exp(step * weights.a[head]!);
    for (let channel = head * headDim; channel < (head + 1) * headDim; channel++) {
      let sum = x[channel]! * weights.d[head]!;
      for (let i = 0; i < stateSize; i++) {
        const at = channel * stateSize + i;
        state[at] = state[at]! * decay + b[group * stateSize + i]! * x[channel]! * step;
        sum += state[at]! * c[group * stateSize + i]!;
      }
      y[channel] = sum;
    }
  }
  return y;
}

export interface DeltaNetToken {
  readonly q: Float32Array;
  readonly k: Float32Array;
  readonly v: Float32Array;
  readonly alpha: Float32Array;
  readonly beta: Float32Array;
}

/** `state`: `[heads][headDim of v][headDim of k]`. */
export function deltaNetInDoubles(
  state: Float64Array,
  { q, k, v, alpha, beta }: DeltaNetToken,
  weights: { readonly a: Float32Array; readonly bias: Float32Array },
  hasAdjacentHeads = false,
): Float64Array {
  const heads = alpha.length;
  const headDim = v.length / heads;
  const keys = k.length / headDim;
  const y = new Float64Array(v.length);
  for (let head = 0; head < heads; head++) {
    const key = (hasAdjacentHeads ? Math.floor((head * keys) / heads) : head % keys) * headDim;
    const decay = Math.exp(softplus(alpha[head]! + weights.bias[head]!) * weights.a[head]!);
    for (let j = head * headDim; j < (head + 1) * headDim; j++) {
      const row = state.subarray(j * headDim, (j + 1) * headDim);
      let predicted = 0;
      for (let i = 0; i < headDim; i++) {
        row[i] = row[i]! * decay;
        predicted += row[i]! * k[key + i]!;
      }
      const delta = (v[j]! - predicted) * sigmoid(beta[head]!);
      let sum = 0;
      for (let i = 0; i < headDim; i++) {
        row[i] = row[i]! + k[key + i]! * delta;
        sum += row[i]! * q[key + i]!;
      }
      y[j] = sum / Math.sqrt(headDim);
    }
  }
  return y;
}

import type { NativeApi, RawPtr } from '../../ggml/ffi.ts';
import { type CompileOptions, doWithout, type NativeSource, openNative } from '../../native/compiler.ts';
import { tensorFields } from '../../native/tensor-fields.ts';
import { type Distribution, expOfBin, type LogitsPasses } from './logits-candidates.ts';

/** Passes over rows of logits in C. */
export interface NativeLogitsPasses extends LogitsPasses {
  /**
   * `best` for shares of rows, for `GraphBuilder.custom`: F32 `[vocab, rows]` -> I32 `[shares, rows]`; see `logits.c`.
   */
  readonly bestOfShares: RawPtr;
}

/** Undefined without a compiler. */
export async function openLogitsPasses(
  native: NativeApi,
  options: CompileOptions = {},
): Promise<NativeLogitsPasses | undefined> {
  try {
    return await openNative(logitsSource, options, ({ path }) => passesIn(native, path));
  } catch (error) {
    return doWithout(error, 'The kernel for sampling', 'Sampling is slower without it; the text is the same.', options);
  }
}

export const logitsSource: NativeSource = {
  file: 'runner/sampling/logits.c',
  headers: ['native/vector.h', tensorFields.header],
  definitions: tensorFields.definitions,
};

function passesIn(native: NativeApi, path: string): NativeLogitsPasses {
  const best = native.functionIn(path, 'kvasir_best', 'i64', 'data', 'i64');
  const countBins = native.functionIn(path, 'kvasir_count_bins', 'void', 'data', 'i64', 'raw', 'data');
  const weighBins = native.functionIn(path, 'kvasir_weigh_bins', 'f64', 'data', 'i64', 'raw', 'data', 'data');
  const collectCandidates = native.functionIn(
    path,
    'kvasir_collect',
    'i64',
    'data',
    'i64',
    'raw',
    'data',
    'data',
    'data',
    'data',
    'data',
  );
  /** `struct distribution` of logits.c. */
  const record = new Float64Array(new ArrayBuffer(24));
  const address = native.addressOf(record.buffer) as RawPtr;
  const weightSum = new Float64Array(1);
  const describe = ({ max, temperature }: Distribution, thresholdNats: number): RawPtr => {
    record[0] = max;
    record[1] = temperature;
    record[2] = thresholdNats;
    return address;
  };
  return {
    bestOfShares: native.functionIn(path, 'kvasir_best_of_shares_pointer', 'raw')(),
    best: (row) => best(row, row.length),
    countBins: (from, bins) => countBins(from.logits, from.logits.length, describe(from, from.thresholdNats), bins),
    weighBins: (from, bins) =>
      weighBins(from.logits, from.logits.length, describe(from, from.thresholdNats), expOfBin, bins),
    collectCandidates: (candidates, from, thresholdNats) => {
      const { ids, natsBelowBest, weights } = candidates;
      const { logits } = from;
      candidates.count = collectCandidates(
        logits,
        logits.length,
        describe(from, thresholdNats),
        expOfBin,
        ids,
        natsBelowBest,
        weights,
        weightSum,
      );
      return weightSum[0]!;
    },
  };
}

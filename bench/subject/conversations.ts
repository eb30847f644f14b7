import { turnTooShort } from '../errors.ts';
import type { RunTimes } from './run-times.ts';
import type { Workload } from './workload.ts';

/** Streams the answer to a prompt: arrays of tokens that came together. If only their number is known, any tokens. */
export type Generate = (prompt: Int32Array, maxTokens: number) => AsyncIterable<ArrayLike<number>>;

/** Runs all conversations at once and records the times of tokens. Returns the seconds until the last token. */
export async function converse(workload: Workload, generate: Generate, times: RunTimes): Promise<number> {
  const startedMs = performance.now();
  const run = async (turns: Workload['conversations'][number]): Promise<void> => {
    const history = Array.from(workload.prefix);
    for (const { prompt, generateLength } of turns) {
      history.push(...prompt);
      const turn = times.beginTurn(performance.now());
      for await (const tokens of generate(Int32Array.from(history), generateLength)) {
        turn.add(tokens.length, performance.now());
        history.push(...Array.from(tokens));
      }
      if (turn.tokenCount !== generateLength) throw turnTooShort({ wanted: generateLength, got: turn.tokenCount });
    }
  };
  await Promise.all(workload.conversations.map(run));
  return (performance.now() - startedMs) / 1000;
}

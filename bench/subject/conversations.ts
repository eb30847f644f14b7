import { turnTooShort } from '../errors.ts';
import type { RunTimes } from './run-times.ts';
import type { Workload } from './workload.ts';

/** Streams the answer to a prompt, by tokens: those that came together. Where only their number is known, any will do. */
export type Generate = (prompt: Int32Array, maxTokens: number) => AsyncIterable<ArrayLike<number>>;

/** Leads all conversations at once and notes when tokens come. Returns the seconds until the last. */
export async function converse(workload: Workload, generate: Generate, times: RunTimes): Promise<number> {
  const startedMs = performance.now();
  const lead = async (turns: Workload['conversations'][number]): Promise<void> => {
    const said = Array.from(workload.prefix);
    for (const { prompt, generateLength } of turns) {
      said.push(...prompt);
      const turn = times.beginTurn(performance.now());
      for await (const tokens of generate(Int32Array.from(said), generateLength)) {
        turn.add(tokens.length, performance.now());
        said.push(...Array.from(tokens));
      }
      if (turn.tokenCount !== generateLength) throw turnTooShort({ wanted: generateLength, got: turn.tokenCount });
    }
  };
  await Promise.all(workload.conversations.map(lead));
  return (performance.now() - startedMs) / 1000;
}

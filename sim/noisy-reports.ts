import { assert } from '../src/base/assert.ts';
import type { Prng } from '../src/base/prng.ts';
import type { ConnectorOutput, TransferId } from '../src/connector/connector.ts';
import type { TierFaults } from './faults.ts';

const unknownIds = 1e9;
const endings = ['finishedRecving', 'finishedSending', 'drained'] as const;

/** Reports that come twice or name unknown transfers, and the check that none of them reaches the connector (I6). */
export class NoisyReports {
  readonly #prng: Prng;
  #repeats: { readonly rank: number; readonly output: ConnectorOutput }[] = [];
  /** The transfers whose end was reported, by kind of report. */
  readonly #ended = { finishedRecving: new Set(), finishedSending: new Set(), drained: new Set() };

  constructor(prng: Prng) {
    this.#prng = prng;
  }

  /** The report of a rank, perhaps with repeated and unknown ends. */
  addTo(rank: number, output: ConnectorOutput, faults: TierFaults): ConnectorOutput {
    const isAlone = this.#repeats.length === 0 && faults.twice === 0 && faults.unknown === 0;
    if (isAlone) return output;
    const outputs = [output];
    if (this.#repeats.length > 0)
      this.#repeats = this.#repeats.filter((repeat) => {
        if (repeat.rank !== rank || !this.#prng.chance(0.3)) return true;
        outputs.push(repeat.output);
        return false;
      });
    if (this.#prng.chance(faults.twice)) this.#repeats.push({ rank, output });
    const isUnknownToCome = this.#prng.chance(faults.unknown);
    if (outputs.length === 1 && !isUnknownToCome) return output;
    const made = {
      ...output,
      finishedRecving: outputs.flatMap(({ finishedRecving }) => finishedRecving),
      finishedSending: outputs.flatMap(({ finishedSending }) => finishedSending),
      drained: outputs.flatMap(({ drained }) => drained),
      failedRecving: outputs.flatMap(({ failedRecving }) => failedRecving),
      loadFailures: outputs.flatMap(({ loadFailures }) => loadFailures),
    };
    if (isUnknownToCome) made.finishedRecving.push((unknownIds + 1) as TransferId);
    return made;
  }

  /** A report that the engine has accepted. */
  check(output: ConnectorOutput): void {
    for (const kind of endings)
      for (const id of output[kind]) {
        if (id >= unknownIds) assert(false, `I6: the unknown transfer ${id} reached the connector`);
        if (this.#ended[kind].has(id)) assert(false, `I6: transfer ${id} ends twice (${kind})`);
        this.#ended[kind].add(id);
      }
  }
}

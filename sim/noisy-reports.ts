import { assert } from '../src/base/assert.ts';
import type { Prng } from '../src/base/prng.ts';
import type { ConnectorOutput, LoadOutcome, SaveOutcome, TransferId } from '../src/connector/connector.ts';
import type { TierFaults } from './faults.ts';

const unknownIds = 1e9;

/** Reports of a rank that come twice or name unknown transfers. */
export class NoisyReports {
  readonly #prng: Prng;
  #repeats: ConnectorOutput[] = [];

  constructor(prng: Prng) {
    this.#prng = prng;
  }

  /** The report, perhaps with repeated and unknown ends. */
  addTo(output: ConnectorOutput, faults: TierFaults): ConnectorOutput {
    const isAlone = this.#repeats.length === 0 && faults.twice === 0 && faults.unknown === 0;
    if (isAlone) return output;
    const outputs = [output];
    if (this.#repeats.length > 0)
      this.#repeats = this.#repeats.filter((repeat) => {
        if (!this.#prng.chance(0.3)) return true;
        outputs.push(repeat);
        return false;
      });
    if (this.#prng.chance(faults.twice)) this.#repeats.push(output);
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
}

/** Checks that no repeated or unknown end reaches the connector (I6). */
export class OutcomeChecker {
  /** Blocks of loads, and keys of saves, that had an outcome. */
  readonly #ended = new Set<string>();

  /** What the engine has accepted. */
  check(loads: readonly LoadOutcome[], saves: readonly SaveOutcome[]): void {
    for (const { transfer, block } of loads) this.#end(transfer, `block ${block}`);
    for (const { transfer, key } of saves) this.#end(transfer, key);
  }

  #end(transfer: TransferId, what: string): void {
    if (transfer >= unknownIds) assert(false, `I6: the unknown transfer ${transfer} reached the connector`);
    const name = `${transfer} ${what}`;
    if (this.#ended.has(name)) assert(false, `I6: transfer ${transfer} has two outcomes for ${what}`);
    this.#ended.add(name);
  }
}

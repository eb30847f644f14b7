import type { OutputConstraint } from '../core/constraint.ts';
import { limitsAtOnce } from './budget.ts';
import { grammarUnsupported } from './errors.ts';
import { Matcher } from './matcher.ts';
import { MatcherMemory } from './matcher-memory.ts';
import { buildNetwork, type Network } from './network.ts';
import { type BuildAnswer, type BuildJob, decodeNetwork } from './network-codec.ts';
import { type GrammarSource, refusalOf, refused } from './structured-grammar.ts';
import { readVocabulary, type Vocabulary, type VocabularySource } from './vocabulary.ts';

/** Compiled grammars that are kept, least recently used first. */
const grammarsMax = 128;
const memoryMaxBytes = 64 * 2 ** 20;
/** Longer sources are compiled on another thread in any case. */
const charactersAtOnce = 16 * 1024;

/** Compiles grammars on another thread. */
export interface GrammarBuilder {
  /** Stops if the signal aborts. */
  build(job: BuildJob, signal?: AbortSignal): Promise<BuildAnswer>;
  /** Open calls reject. */
  close(): void;
}

export type NotesListener = (notes: readonly string[], parameter: string) => void;

/** The compiled grammars of an engine. Compiling does not block the event loop: only small grammars are compiled on its thread. */
export class Grammars {
  readonly #source: VocabularySource;
  readonly #builder: GrammarBuilder;
  readonly #onNotes: NotesListener;
  readonly #memory = new MatcherMemory(memoryMaxBytes);
  readonly #compiled = new Map<string, OutputConstraint>();
  #reading: Promise<Vocabulary> | undefined;
  #vocabulary: Vocabulary | undefined;

  /** `onNotes` is called when a grammar is compiled that does not keep all of its source. */
  constructor(source: VocabularySource, builder: GrammarBuilder, onNotes: NotesListener = () => undefined) {
    this.#source = source;
    this.#builder = builder;
    this.#onNotes = onNotes;
  }

  /**
   * A grammar that was used before, or is small. Undefined: it must be compiled with `compile`.
   * @throws KvasirError `grammarUnsupported`
   */
  compileAtOnce(source: GrammarSource): OutputConstraint | undefined {
    const { key, parameter } = source;
    const known = this.#compiled.get(key);
    if (known !== undefined) return this.#keep(key, known);
    if (this.#vocabulary === undefined || key.length > charactersAtOnce) return undefined;
    let network: Network;
    try {
      network = buildNetwork(source.build(limitsAtOnce), this.#vocabulary.controlTokens, limitsAtOnce);
    } catch (error) {
      const refusal = refusalOf(error);
      if (refusal?.isTooLarge === true) return undefined;
      throw refusal === undefined ? error : refused(refusal, parameter);
    }
    return this.#add(source, network, this.#vocabulary);
  }

  /**
   * Compiles a grammar of any size, for the first of them after the vocabulary is read. Rejects also if the tokenizer or the
   * builder is closed meanwhile, and with the reason of the signal.
   * @throws KvasirError `grammarUnsupported` or `grammarTooLarge`.
   */
  async compile(source: GrammarSource, signal?: AbortSignal): Promise<OutputConstraint> {
    const vocabulary = await this.#read();
    const small = this.compileAtOnce(source);
    if (small !== undefined) return small;
    const { controlTokens } = vocabulary;
    const answer = await this.#builder.build({ job: source.job, controlTokens }, signal);
    if ('refusal' in answer) throw refused(answer.refusal, source.parameter);
    return this.#add(source, decodeNetwork(answer.network), vocabulary);
  }

  close(): void {
    this.#builder.close();
  }

  /** Reads the vocabulary, once, in small parts. After an error, the next call tries again. */
  async #read(): Promise<Vocabulary> {
    this.#reading ??= readVocabulary(this.#source);
    try {
      this.#vocabulary = await this.#reading;
    } catch (error) {
      this.#reading = undefined;
      throw error;
    }
    return this.#vocabulary;
  }

  #add({ key, parameter }: GrammarSource, network: Network, vocabulary: Vocabulary): OutputConstraint {
    const constraint = new Matcher(network, vocabulary, this.#memory);
    if (network.notes.length > 0) this.#onNotes(network.notes, parameter);
    try {
      const first = constraint.allowedTokens(constraint.start, false);
      if (first.some((word) => word !== 0)) return this.#keep(key, constraint);
    } catch (error) {
      const refusal = refusalOf(error);
      throw refusal === undefined ? error : refused(refusal, parameter);
    }
    const problem = 'no token of the model begins such an output, or it is too ambiguous';
    throw grammarUnsupported({ parameter, problem });
  }

  #keep(key: string, constraint: OutputConstraint): OutputConstraint {
    this.#compiled.delete(key);
    this.#compiled.set(key, constraint);
    if (this.#compiled.size > grammarsMax) this.#compiled.delete(this.#compiled.keys().next().value!);
    return constraint;
  }
}

import { cp, mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Prng } from '../../../src/base/prng.ts';
import type { CompletionRequest } from '../../../src/cli/proof/completion.ts';
import { type ModelChange, writeChangedModel } from './changed-model.ts';
import { compareAnswers, type PeerRow } from './outcomes.ts';
import { type PeerFault, peerFaultsOf } from './peer-faults.ts';
import type { Answer, Answers, Scale, Setup, Subject, SubjectServer } from './subject.ts';

export interface PeerRunOptions {
  readonly subjects: readonly Subject[];
  readonly requests: readonly CompletionRequest[];
  /** The path of a GGUF file. */
  readonly model: string;
  readonly adapter: Readonly<Record<Scale, string>>;
  /** The part of the stored units that a fault damages, and of the requests whose loads are lost. */
  readonly part: number;
  readonly lateMs: number;
  readonly seed: number;
  /** Runs only faults whose name matches. */
  readonly only?: RegExp;
  readonly folder: string;
  onProgress(text: string): void;
}

/** Runs every fault on every program that can have it, and compares with undisturbed answers of the same program. */
export async function runPeers(options: PeerRunOptions): Promise<PeerRow[]> {
  const rows: PeerRow[] = [];
  const faults = peerFaultsOf(options.lateMs, Math.max(1, Math.round(options.part * options.requests.length)));
  for (const subject of options.subjects) {
    const run = new SubjectRun(subject, options);
    for (const fault of faults) {
      if (options.only?.test(fault.name) === false) continue;
      if (fault.kind !== undefined && subject.without.includes(fault.kind)) continue;
      options.onProgress(`${subject.name}: ${fault.name}`);
      const row = await run.row(fault);
      options.onProgress(`  ${JSON.stringify(row)}`);
      rows.push(row);
    }
    await run.remove();
  }
  return rows;
}

class SubjectRun {
  readonly #subject: Subject;
  readonly #options: PeerRunOptions;
  readonly #prng: Prng;
  readonly #folder: string;
  /** By setup, the answers of a process without a store. */
  readonly #references = new Map<string, readonly Answers[]>();
  #filled: Promise<string> | undefined;

  constructor(subject: Subject, options: PeerRunOptions) {
    this.#subject = subject;
    this.#options = options;
    this.#prng = new Prng(options.seed);
    this.#folder = join(options.folder, subject.name);
  }

  async row(fault: PeerFault): Promise<PeerRow> {
    const { name, version } = this.#subject;
    const { answers, hasEnded, reference } =
      fault.isRescaled === true ? await this.#rescaled() : await this.#loaded(fault);
    const compared = compareAnswers(answers, await this.#referencesOf(reference));
    return { subject: name, version, fault: fault.name, ...compared, hasEnded };
  }

  async remove(): Promise<void> {
    await rm(this.#folder, { recursive: true, force: true });
  }

  /** A process loads what another has stored. */
  async #loaded({ damage, loading = {}, isKilled = false }: PeerFault) {
    const { change, hasAdapter, ...rest } = loading;
    const reference: Setup = {
      model: await this.#modelOf(change),
      ...(hasAdapter === true ? { adapter: this.#options.adapter } : {}),
    };
    const store = join(this.#folder, 'damaged');
    await rm(store, { recursive: true, force: true });
    await cp(await this.#filledStore(), store, { recursive: true });
    if (damage !== undefined) await this.#damage(store, damage);
    const setup = { ...reference, ...rest, store, isKilled };
    let killing: Promise<void> | undefined;
    const result = await this.#with(setup, async (server) => {
      const kill = (): void => {
        killing ??= server.killComputing();
      };
      const answers = await server.answer(this.#options.requests, isKilled ? kill : undefined);
      await killing;
      return { answers, hasEnded: !(await server.isServing()) };
    });
    return { ...result, reference };
  }

  /** Each request runs with the whole scale, and again with a quarter of it. */
  async #rescaled() {
    const { adapter, model, requests } = this.#options;
    const result = await this.#with({ model, adapter, reuses: true }, async (server) => {
      const answers: (Answer | undefined)[] = [];
      for (const request of requests) {
        await server.setScale('whole');
        await server.answer([request]);
        await server.setScale('quarter');
        answers.push(...(await server.answer([request])));
      }
      return { answers, hasEnded: !(await server.isServing()) };
    });
    const quarter = { whole: adapter.quarter, quarter: adapter.quarter };
    return { ...result, reference: { model, adapter: quarter } };
  }

  async #referencesOf(setup: Setup): Promise<readonly Answers[]> {
    const key = JSON.stringify(setup);
    const found = this.#references.get(key);
    if (found !== undefined) return found;
    this.#options.onProgress(`  ${this.#subject.name}: undisturbed, without a store`);
    const references = await this.#with(setup, (server) => server.references(this.#options.requests));
    this.#references.set(key, references);
    return references;
  }

  #filledStore(): Promise<string> {
    this.#filled ??= this.#fill(join(this.#folder, 'store'));
    return this.#filled;
  }

  async #fill(store: string): Promise<string> {
    const { model, requests } = this.#options;
    await mkdir(this.#folder);
    await this.#with({ model, store }, (server) => server.fill(requests.map((one) => ({ ...one, maxTokens: 1 }))));
    return store;
  }

  async #modelOf(change: ModelChange | undefined): Promise<string> {
    const { model } = this.#options;
    if (change === undefined) return model;
    const path = join(this.#options.folder, `${change.replaceAll(' ', '-')}.gguf`);
    await writeChangedModel(model, path, change);
    return path;
  }

  async #damage(store: string, { how, files }: NonNullable<PeerFault['damage']>): Promise<void> {
    const units = await this.#subject.unitsIn(store);
    const count = Math.max(1, Math.round(this.#options.part * units.length));
    const first = this.#prng.between(0, units.length - 1);
    // Every n-th unit: the units after them stay whole until their copies are made.
    const step = Math.max(1, Math.floor(units.length / count));
    for (let i = 0; i < count; i++) {
      const at = (first + i * step) % units.length;
      const [unit, other] = [units[at]!, units[(at + 1) % units.length]!];
      const chosen = files === 'all' ? [...unit.keys()] : [this.#prng.between(0, unit.length - 1)];
      for (const file of chosen) await how(unit[file]!, this.#prng, other[file]!);
    }
  }

  async #with<T>(setup: Setup, work: (server: SubjectServer) => Promise<T>): Promise<T> {
    const server = await this.#subject.start(setup);
    try {
      return await work(server);
    } finally {
      await server.stop();
    }
  }
}

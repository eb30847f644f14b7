import { basename } from 'node:path';
import type { LoadProgress } from '../engine/options.ts';
import type { LoadPhase, LoadStatus } from '../server/loading-routes.ts';
import type { TextSink } from './context.ts';
import { downloadProgress, loadProgress, type OpeningProgress } from './load-progress.ts';

/** Clients without a better guess ask again after so many seconds. */
const retryDefaultSeconds = 5;
const retryMaxSeconds = 60;

/** How far the load of a model is: shown to users, and told to clients of the server. */
export class LoadWatch implements OpeningProgress {
  readonly onDownloadProgress: LoadProgress;
  readonly onProgress: LoadProgress;
  readonly onDigestProgress: LoadProgress;
  readonly #name: string;
  readonly #nowMs: () => number;
  readonly #onChange: (status: LoadStatus) => void;
  #phase: LoadPhase = 'starting';
  #bytes: { readonly done: number; readonly total: number } | undefined;
  #phaseStartMs: number;

  /** @param onChange called when a phase begins and at each further percent of it */
  constructor(
    model: string,
    out: TextSink,
    onChange: (status: LoadStatus) => void = () => undefined,
    nowMs: () => number = () => performance.now(),
  ) {
    this.#name = basename(model);
    this.#nowMs = nowMs;
    this.#onChange = onChange;
    this.#phaseStartMs = nowMs();
    const shown = loadProgress(model, out);
    const shownDownload = downloadProgress(model, out);
    let areWeightsRead = true;
    this.onDownloadProgress = (done, total) => {
      shownDownload(done, total);
      this.#report('downloading', done, total);
    };
    this.onProgress = (done, total) => {
      shown.onProgress(done, total);
      areWeightsRead = done === total;
      this.#report('weights', done, total);
    };
    // The file is hashed while the weights are read, or before.
    this.onDigestProgress = (done, total) => {
      shown.onDigestProgress(done, total);
      if (areWeightsRead) this.#report('hashing', done, total);
    };
  }

  status(): LoadStatus {
    const head = { phase: this.#phase, message: this.#message(), retryAfterSeconds: this.#retryAfterSeconds() };
    return this.#bytes === undefined ? head : { ...head, doneBytes: this.#bytes.done, totalBytes: this.#bytes.total };
  }

  #report(phase: LoadPhase, done: number, total: number): void {
    const before = { phase: this.#phase, percent: this.#percent() };
    if (done >= total) this.#enter('preparing', undefined);
    else this.#enter(phase, { done, total });
    if (before.phase !== this.#phase || before.percent !== this.#percent()) this.#onChange(this.status());
  }

  #enter(phase: LoadPhase, bytes: { readonly done: number; readonly total: number } | undefined): void {
    if (phase !== this.#phase) this.#phaseStartMs = this.#nowMs();
    this.#phase = phase;
    this.#bytes = bytes;
  }

  #percent(): number | undefined {
    return this.#bytes === undefined ? undefined : Math.floor((100 * this.#bytes.done) / this.#bytes.total);
  }

  #message(): string {
    const percent = `${this.#percent() ?? 0} %`;
    switch (this.#phase) {
      case 'starting':
        return `The server opens ${this.#name}.`;
      case 'downloading':
        return `The server downloads ${this.#name}: ${percent}.`;
      case 'weights':
        return `The server loads ${this.#name}: ${percent}.`;
      case 'hashing':
        return `The server hashes ${this.#name}: ${percent}.`;
      case 'preparing':
        return `The server prepares to serve ${this.#name}.`;
    }
  }

  /** What this phase still takes at its speed so far. */
  #retryAfterSeconds(): number {
    const seconds = (this.#nowMs() - this.#phaseStartMs) / 1000;
    if (this.#bytes === undefined) return this.#phase === 'preparing' ? 1 : retryDefaultSeconds;
    const { done, total } = this.#bytes;
    if (done === 0) return retryDefaultSeconds;
    return Math.min(retryMaxSeconds, Math.max(1, Math.ceil((seconds * (total - done)) / done)));
  }
}

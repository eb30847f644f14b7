import type { RankTrouble } from '../worker/rank.ts';
import type { EngineHealth } from './contract.ts';

/** The health of an engine with ranks that do not serve. A rank that is not restarted breaks the engine at the next step. */
export const rankHealth = (ranks: readonly RankTrouble[]): EngineHealth => ({
  status: ranks.some(({ state }) => state === 'gone') ? 'broken' : 'recovering',
  message: ranks.map(({ message }) => message).join(' '),
  ranks,
});

/** What a worker process runs: one rank, for the process that has started it. */
import { openRankAlone } from './compose-rank.ts';
import { serveRank } from './worker/worker-serve.ts';

serveRank(openRankAlone);

/** The main module of a worker process: serves one rank to the process that started it. */
import { openRankAlone } from './compose-rank.ts';
import { serveRank } from './worker/worker-serve.ts';

serveRank(openRankAlone);

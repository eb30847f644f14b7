/** The engine's contract with real weights, in one process and with a worker process. */
import { beforeAll } from 'vitest';
import { createEngine } from '../src/compose.ts';
import { engineSuite } from '../src/engine/engine.suite.ts';
import { buildCommand } from './support/cli-process.ts';
import { smallDemo } from './support/small-demo.ts';

beforeAll(buildCommand);

engineSuite('the executor in this process', () => createEngine({ ...smallDemo, distributedExecutorBackend: 'uni' }));
engineSuite('the executor in a worker process', () => createEngine({ ...smallDemo, distributedExecutorBackend: 'mp' }));

import { GraphBuilder } from '../../src/ggml/graph.ts';

/**
 * From now on, this process computes steps on its main thread. For tests that wait for each step anyway: with small models, handing a
 * step to another thread takes longer than computing it. The functions of ggml and their arguments are the same.
 */
export function computeHere(): void {
  GraphBuilder.prototype.compute = async function (this: GraphBuilder) {
    this.computeNow();
  };
}

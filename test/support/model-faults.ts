/** Faults of the engines of a built server, which the test orders by a file. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

/** `memory`: a step runs out of native memory. `step`: it never ends. `loop`: the event loop of the process never continues. */
export type ModelFault = 'memory' | 'step' | 'loop';

/**
 * The environment in which each process of `mainInModules` has the fault that `order` writes for its model, at its next step. `folder`: the place for the module
 * that Node loads before the command, and for the order.
 */
export function modelFaults(folder: string) {
  const orderOf = (model: string): string => join(folder, `order-${model}`);
  const built = (path: string): string => JSON.stringify(pathToFileURL(join(process.cwd(), 'dist', 'src', path)).href);
  const path = join(folder, 'model-faults.mjs');
  writeFileSync(
    path,
    `import { readFileSync, rmSync } from 'node:fs';
     import { GgmlRunner } from ${built('runner/ggml-runner.js')};
     import { outOfNativeMemory } from ${built('ggml/errors.js')};
     const order = ${JSON.stringify(orderOf(''))} + process.argv.at(-1);
     const { execute } = GgmlRunner.prototype;
     GgmlRunner.prototype.execute = function (...step) {
       let fault;
       try {
         fault = readFileSync(order, 'utf8');
         rmSync(order);
       } catch {
         return execute.apply(this, step);
       }
       if (fault === 'memory') return Promise.reject(outOfNativeMemory({ amount: 'a buffer', purpose: 'a test', device: 'CPU', hint: 'Use a smaller model.' }));
       if (fault === 'step') return new Promise(() => undefined);
       for (;;);
     };`,
  );
  return {
    environment: { NODE_OPTIONS: `--import=${pathToFileURL(path).href}` },
    order: (model: string, fault: ModelFault): void => writeFileSync(orderOf(model), fault),
  };
}

/** How long three models are tested under faults. */
export const soakMinutes = (usual: number): number => Number(process.env.KVASIR_MODELS_SOAK_MINUTES ?? usual);

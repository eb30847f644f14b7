import { Command } from 'commander';
import { demoModelPath } from '../../base/package-files.ts';
import { type Device, engineDefaults, type GpuLayers } from '../../engine/options.ts';
import { readGguf } from '../../ggml/gguf.ts';
import type { KvTypeName } from '../../runner/kv-memory.ts';
import { bytesFlag, gpuLayersFlag, integerFrom, modelLenFlag, oneOf, speculativeConfigFlag } from '../args.ts';
import type { CliContext, ExitCode } from '../context.ts';
import { describeSize } from './describe-size.ts';
import { gpuWith } from './gpu-share.ts';
import { ModelSize, type SizeOptions } from './memory-needs.ts';
import { reportSize } from './size-report.ts';

interface SizeFlags extends SizeOptions {
  readonly kvCacheDtype: KvTypeName;
  readonly device: Device;
  readonly gpuLayers: GpuLayers;
  readonly memory?: number;
  readonly gpuMemory?: number;
  readonly tier?: readonly number[];
  readonly json: boolean;
}

const help = `
Memory of a server is weights + KV pool + process. Only the header of the file is read; the process is an estimate.
With a GPU, it says what goes there, and what fits into its free memory.
A name like hf:owner/name:Q8_0 works too: the model is downloaded if it is not there.`;

export function sizeCommand(context: CliContext, exit: (code: ExitCode) => void): Command {
  const count = integerFrom(1);
  return new Command('size')
    .summary('show how much memory a model needs')
    .description(
      'Show the memory that a model needs: weights, KV per token, the pool for some sequences of some tokens, states, and what a tier of some size holds.',
    )
    .argument('[model]', 'path of a GGUF file, or a name like hf:owner/name:Q8_0 (default: the bundled demo model)')
    .option(
      '--max-model-len <tokens>',
      "longest prompt plus output (default: the model's context length)",
      modelLenFlag,
    )
    .option('--max-num-seqs <n>', 'largest number of running requests', count, engineDefaults.maxNumSeqs)
    .option(
      '--max-num-batched-tokens <n>',
      'largest number of tokens in a step',
      count,
      engineDefaults.maxNumBatchedTokens,
    )
    .option('--block-size <tokens>', 'tokens of one KV block', count, engineDefaults.blockSize)
    .option('--state-checkpoint-tokens <tokens>', 'for models with recurrent states: as in serve', count)
    .addOption(oneOf('--kv-cache-dtype <type>', 'type of K and V', ['f16', 'q8_0'], engineDefaults.kvCacheDtype))
    .option(
      '--speculative-config <json>',
      'as in serve: with the method mtp, the layer that drafts and its KV are counted',
      speculativeConfigFlag,
    )
    .addOption(
      oneOf('--device <device>', 'as in serve: where to compute', ['auto', 'cpu', 'gpu'], engineDefaults.device),
    )
    .option(
      '--gpu-layers <n|all|auto>',
      'as in serve: how many of the last layers compute on the GPU',
      gpuLayersFlag,
      engineDefaults.gpuLayers,
    )
    .option(
      '--gpu-memory <bytes>',
      'free memory of a GPU, like 24GiB: show what fits there (default: of the GPU of this machine, if there is one)',
      bytesFlag,
    )
    .option('--memory <bytes>', 'memory of the machine or container, like 16GiB: show what fits', bytesFlag)
    .option('--tier <bytes>', 'size of a tier, like 100GiB: show what it holds; may be repeated', bytesList)
    .option('--json', 'print JSON, with bytes as numbers', false)
    .addHelpText('after', help)
    .action(async (model: string | undefined, flags: SizeFlags) => {
      const file = await readGguf(model ?? demoModelPath());
      const { memory, gpuMemory, tier, json, ...options } = flags;
      const size = new ModelSize(file, flags);
      const gpu = await context.shareOnGpu?.(
        { ...options, model: file.path },
        file,
        gpuMemory === undefined ? undefined : gpuWith(gpuMemory),
      );
      const report = reportSize(size, flags, gpu);
      context.stdout.write(json ? `${JSON.stringify(report, undefined, 2)}\n` : describeSize(report));
      exit(0);
    });
}

function bytesList(text: string, before: readonly number[] | undefined): number[] {
  return [...(before ?? []), bytesFlag(text)];
}

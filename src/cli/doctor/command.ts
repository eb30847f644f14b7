import { Command } from 'commander';
import { formatBytes } from '../../base/bytes.ts';
import { cpuHasAmx } from '../../runner/matmul/tile-forms.ts';
import type { CliContext, ExitCode } from '../context.ts';
import { adviceFor } from './advice.ts';
import { type AmxReport, amxReportOf, describeAmx } from './amx.ts';
import { describeGpus, type GpuReport, reportGpus } from './gpu.ts';
import { type KernelReport, reportKernels } from './kernels.ts';
import { type MachineReport, reportMachine } from './machine.ts';
import { measureMemorySpeed } from './memory-speed.ts';

/** The output of `kvasir doctor --json`. */
export interface DoctorReport extends MachineReport {
  readonly version: string;
  /** At which all threads read memory together. It limits decodes. */
  readonly memoryBytesPerSecond: number;
  readonly kernels: readonly KernelReport[];
  readonly gpu: GpuReport;
  /** Of CPUs for x64; absent if the system does not list instructions. */
  readonly amx?: AmxReport;
  readonly advice: readonly string[];
}

export function doctorCommand(context: CliContext, exit: (code: ExitCode) => void): Command {
  return new Command('doctor')
    .summary('show which kernels run on this machine, and what would make it faster')
    .description(
      'Show the CPU, its instructions, the GPU, the kernels that run and why, the speed of memory and the threads, and say what to change. Kernels that are neither in the package nor in the cache are compiled.',
    )
    .option(
      '--model <model>',
      'show the kernels of this model: path of a GGUF file, or a name like hf:owner/name:Q8_0 (default: all matmuls, and the attention of the bundled model)',
    )
    .option('--json', 'print JSON', false)
    .action(async ({ model, json }: { readonly model?: string; readonly json: boolean }) => {
      const machine = await reportMachine();
      const kernels = await reportKernels(model);
      const memoryBytesPerSecond = await measureMemorySpeed(machine.threads.default);
      const mayHaveAmx = process.arch === 'x64' && machine.cpu.features !== undefined;
      const amx = mayHaveAmx ? { amx: amxReportOf(await cpuHasAmx(), kernels) } : {};
      const advice = adviceFor(machine, kernels);
      const report: DoctorReport = {
        version: context.version,
        ...machine,
        memoryBytesPerSecond,
        kernels,
        gpu: await reportGpus(),
        ...amx,
        advice,
      };
      context.stdout.write(json ? `${JSON.stringify(report, undefined, 2)}\n` : describe(report));
      exit(0);
    });
}

function describe({ version, platform, node, cpu, threads, memory, cache, ...rest }: DoctorReport): string {
  const quota = threads.quota === undefined ? '' : `, of which this container may use ${threads.quota}`;
  const hugePages = memory.hugePages === undefined ? '' : `, huge pages: ${memory.hugePages}`;
  const folder = cache.folder ?? 'none: the user has no home';
  const facts = [
    ['kvasir', `${version}, ${platform}, Node ${node}`],
    ['CPU', cpu.model],
    ['instructions', cpu.features?.join(' ') ?? 'not listed by the system'],
    ['kernel level', cpu.level ?? 'none: kernels are compiled for this CPU'],
    ...(rest.amx === undefined ? [] : [['AMX', describeAmx(rest.amx, rest.kernels)]]),
    ...describeGpus(rest.gpu).map((line) => ['GPU', line]),
    ['threads', `${threads.default}${quota}`],
    ['memory', `${formatBytes(memory.totalBytes)}, ${formatBytes(memory.freeBytes)} free${hugePages}`],
    ['memory speed', `${(rest.memoryBytesPerSecond / 1e9).toFixed(1)} GB/s with all threads`],
    ['cache folder', `${folder}${cache.isWritable || cache.folder === undefined ? '' : ' (cannot be written)'}`],
  ].map(([name = '', value]) => `${name.padEnd(14)}${value}\n`);
  const rows = rest.kernels.map(({ name, state, level = '', reason = '' }) => [name, state, level, reason]);
  const table = columns([['kernel', 'state', 'level', 'reason'], ...rows]);
  const advice = rest.advice.length === 0 ? ['Nothing needs to be changed.'] : rest.advice;
  return `${facts.join('')}\n${table}\n${advice.map((line) => `* ${line}\n`).join('')}`;
}

/** Lines of cells that begin at the same column. */
function columns(rows: readonly (readonly string[])[]): string {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  const line = (row: readonly string[]): string => row.map((cell, i) => cell.padEnd(widths[i]!)).join('  ');
  return rows.map((row) => `${line(row).trimEnd()}\n`).join('');
}

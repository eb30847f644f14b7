import type { KernelReport } from './kernels.ts';
import type { MachineReport } from './machine.ts';

/** What would make this machine faster: sentences, most important first. */
export function adviceFor(machine: MachineReport, kernels: readonly KernelReport[]): string[] {
  const { threads, memory, cache } = machine;
  const missing = kernels.filter(({ state, reason = '' }) => state === 'missing' && !/this CPU lacks/.test(reason));
  const advice: string[] = [];
  if (missing.some(({ reason = '' }) => /there is no C compiler/.test(reason))) {
    advice.push(
      'Install a C compiler (gcc or clang), or a package of Kvasir with prebuilt kernels. Prompts and decodes run at about twice the speed with the missing kernels.',
    );
  } else if (missing.length > 0) {
    const remedy = missing.some(({ reason = '' }) => /a temporary folder cannot be made/.test(reason))
      ? 'Set TMPDIR to a folder that can be written.'
      : 'Repair the C compiler, name another one in CC, or install a package of Kvasir with prebuilt kernels.';
    advice.push(
      `Some kernels are missing although this machine could have them. The table has the reasons. ${remedy} Prompts and decodes run at about twice the speed with the missing kernels.`,
    );
  }
  if (kernels.some(({ amx }) => amx === 'not permitted')) {
    advice.push('Permit AMX to this process: a sandbox or a virtual machine refuses it. Prompts are faster with it.');
  }
  if (kernels.some(({ amx }) => amx === 'other bits')) {
    advice.push(
      'Report this output: AMX of this CPU, or of its virtual machine, computes other bits than the other kernels. Texts are right, because AMX is not used. Prompts would be faster with it.',
    );
  }
  const none = kernels.filter(({ state }) => state === 'none');
  if (none.length > 0) {
    advice.push(
      `Quantize the model to another type, for instance Q8_0 or Q4_K_M: ggml computes ${none.map(({ name }) => name).join(' and ')}. The table says what that costs.`,
    );
  }
  const isCompiledHere = kernels.some(({ state }) => state === 'compiled' || state === 'cached');
  if (isCompiledHere && !cache.isWritable) {
    advice.push(
      'Set XDG_CACHE_HOME to a folder that can be written. Without one, kernels are compiled again at each start.',
    );
  }
  if (threads.quota !== undefined && threads.quota < threads.default) {
    const count = Math.max(1, Math.floor(threads.quota));
    advice.push(
      `Start with --threads ${count}: this container may use ${threads.quota} CPUs, and threads beyond that wait for each other.`,
    );
  } else if (threads.hasTwoPerCore && threads.default > 1) {
    advice.push(
      `Compare --threads ${Math.ceil(threads.default / 2)} with the default of ${threads.default}: each core runs two threads, and kernels rarely gain from the second.`,
    );
  }
  if (memory.hugePages === 'never') {
    advice.push(
      'Allow huge pages: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled. Decodes were 3 to 7 % faster with them.',
    );
  }
  return advice;
}

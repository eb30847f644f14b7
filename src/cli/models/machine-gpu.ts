import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { entryPoint } from '../../base/package-files.ts';
import type { GpuMemory } from '../../ggml/device.ts';
import { gpuPackages } from '../../ggml/native-package.ts';
import { inheritedFlags } from '../../worker/node-flags.ts';
import type { SizeReport } from '../size/size-report.ts';

/** A driver that hangs must not stop the server. */
const answerMaxMs = 60_000;

/**
 * The GPU of this machine; undefined without. It is asked in a process of its own (`kvasir size`), because a driver keeps memory of the
 * GPU for each process that asks, and could end it. @throws if that process fails
 */
export async function gpuOfMachine(): Promise<GpuMemory | undefined> {
  const mayBe = process.platform === 'darwin' || gpuPackages().some(({ version }) => version !== undefined);
  if (!mayBe) return undefined;
  const entry = fileURLToPath(entryPoint('src/main'));
  const command = [...inheritedFlags(), entry, 'size', '--json'];
  const { stdout } = await promisify(execFile)(process.execPath, command, { timeout: answerMaxMs });
  return (JSON.parse(stdout) as SizeReport).gpu?.device;
}

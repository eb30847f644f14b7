import { readdirSync, readlinkSync } from 'node:fs';

/** The descriptors of this process, with its threads, whose path has this beginning; on Linux. */
export function openFilesBelow(beginning: string): { readonly descriptor: number; readonly path: string }[] {
  return readdirSync('/proc/self/fd').flatMap((name) => {
    const path = targetOf(name);
    return path?.startsWith(beginning) === true ? [{ descriptor: Number(name), path }] : [];
  });
}

/** Undefined if the file was closed meanwhile. */
function targetOf(descriptor: string): string | undefined {
  try {
    return readlinkSync(`/proc/self/fd/${descriptor}`);
  } catch {
    return undefined;
  }
}

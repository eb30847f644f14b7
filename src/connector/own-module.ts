import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

export type Exported = Readonly<Record<string, unknown>>;

/**
 * Imports a module of the user's. A relative path starts at the working directory; a path without a file is the name of a
 * package. Rejects with the error of the import.
 */
export async function importModule(path: string): Promise<Exported> {
  const file = resolve(path);
  const specifier = path.startsWith('file:') ? path : existsSync(file) ? pathToFileURL(file).href : path;
  return (await import(specifier)) as Exported;
}

/** The export with this name. The exports of a CommonJS module may be visible only as `default`. */
export function exportOf(exported: Exported, name: string): unknown {
  const inner = exported.default;
  return exported[name] ?? (isRecord(inner) ? inner[name] : undefined);
}

export const isRecord = (value: unknown): value is Exported => typeof value === 'object' && value !== null;
export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

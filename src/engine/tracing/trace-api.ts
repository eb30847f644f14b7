import { byName } from '../../base/by-name.ts';
import { tracingPackageMissing } from '../errors.ts';

/** The package `@opentelemetry/api`, which Kvasir does not install. */
export type TraceApi = typeof import('@opentelemetry/api');

/** The tested versions, which the message about a missing package names. */
const versions: Readonly<Record<string, string>> = byName({
  '@opentelemetry/api': '1.9.1',
  '@opentelemetry/sdk-trace-base': '2.12.1',
  '@opentelemetry/resources': '2.12.1',
  '@opentelemetry/exporter-trace-otlp-proto': '0.223.1',
});

/** @throws KvasirError `tracingPackageMissing`, which names all packages of `all`. */
export async function loadTracePackage<T>(load: () => Promise<T>, all: readonly string[]): Promise<T> {
  try {
    return await load();
  } catch (error) {
    const isMissing = (error as { code?: unknown }).code === 'ERR_MODULE_NOT_FOUND';
    const { message } = error as Error;
    const reason = isMissing ? 'they are not all installed' : `they cannot be loaded (${message})`;
    const packages = all.map((name) => `${name}@${versions[name]}`).join(' ');
    throw tracingPackageMissing({ reason, packages }, error);
  }
}

/** @throws KvasirError `tracingPackageMissing`. */
export const loadTraceApi = (): Promise<TraceApi> =>
  loadTracePackage(() => import('@opentelemetry/api'), ['@opentelemetry/api']);

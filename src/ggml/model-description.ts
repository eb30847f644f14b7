import type { GgufMetadata } from './gguf-metadata.ts';

const lengthMax = 300;

/** The file's `general.description` as one line without control characters, because it is shown in terminals; undefined without one. */
export function readDescription({ entries }: Pick<GgufMetadata, 'entries'>): string | undefined {
  const entry = entries.get('general.description');
  if (entry === undefined || 'elementType' in entry || typeof entry.value !== 'string') return undefined;
  const line = entry.value.replace(/[\p{C}\p{Z}]+/gu, ' ').trim();
  const characters = Array.from(line);
  if (characters.length > lengthMax) return `${characters.slice(0, lengthMax - 1).join('')}…`;
  return line === '' ? undefined : line;
}

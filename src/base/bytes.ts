import { byName } from './by-name.ts';

const units: Readonly<Record<string, number>> = byName({
  '': 1,
  b: 1,
  k: 1e3,
  kb: 1e3,
  kib: 1024,
  m: 1e6,
  mb: 1e6,
  mib: 1024 ** 2,
  g: 1e9,
  gb: 1e9,
  gib: 1024 ** 3,
  t: 1e12,
  tb: 1e12,
  tib: 1024 ** 4,
});

/** A number of bytes such as `2GiB`, `512 MiB`, `1.5g` or `1000000`. Undefined for other texts and for 0. */
export function parseBytes(text: string): number | undefined {
  const match = /^\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*$/i.exec(text);
  const unit = units[(match?.[2] ?? '?').toLowerCase()];
  const bytes = Math.floor(Number(match?.[1]) * (unit ?? Number.NaN));
  return Number.isSafeInteger(bytes) && bytes > 0 ? bytes : undefined;
}

/** Bytes for people: `1.5 GiB`, `64 MiB`, `160 B`. */
export function formatBytes(bytes: number): string {
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  for (; value >= 1024 && unit < names.length - 1; unit++) value /= 1024;
  const digits = unit === 0 || value >= 100 || Number.isInteger(value) ? 0 : 1;
  return `${value.toFixed(digits)} ${names[unit]}`;
}

import { InvalidArgumentError } from 'commander';

/** Whole numbers with commas between them. */
export function wholeNumbersFlag(text: string): number[] {
  const values = text.split(',').map(Number);
  if (values.every((value) => Number.isSafeInteger(value) && value >= 0)) return values;
  throw new InvalidArgumentError('It must be whole numbers with commas between them, like 0,2048.');
}

/** Whole numbers from 1 to 256 with commas between them. */
export function countsFlag(text: string): number[] {
  const values = wholeNumbersFlag(text);
  if (values.every((value) => value >= 1 && value <= 256)) return values;
  throw new InvalidArgumentError('It must be whole numbers from 1 to 256 with commas between them, like 1,8,16,64.');
}

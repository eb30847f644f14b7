import { randomBytes } from 'node:crypto';
import type { AnswerFormat } from '../../tools/formats.ts';

/** A new id of a call. Mistral's templates take ids of nine letters and digits only. */
export function newCallId(format: AnswerFormat): string {
  const digits = randomBytes(12).toString('hex');
  return format.tools === 'mistral' ? digits.slice(0, 9) : `call_${digits}`;
}

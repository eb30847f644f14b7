import { randomBytes } from 'node:crypto';
import type { AnswerFormat } from '../../tools/formats.ts';

/** Mistral's templates take no other ids. */
const mistralId = /^[a-zA-Z0-9]{9}$/;

/**
 * The id of a call. One that the model wrote is kept if it is new in the conversation: the prompt of the next turn then has the
 * tokens of this answer, and its KV is cached.
 */
export function callId(format: AnswerFormat, written: string | undefined, isUsed: (id: string) => boolean): string {
  if (written !== undefined && mistralId.test(written) && !isUsed(written)) return written;
  const digits = randomBytes(12).toString('hex');
  return format.tools === 'mistral' ? digits.slice(0, 9) : `call_${digits}`;
}

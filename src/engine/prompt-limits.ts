import { promptTooLong } from '../core/errors.ts';
import type { Tokenizer } from '../tokenizer/contract.ts';
import type { ChatMessage, ModelInfo } from './contract.ts';

/** Longer texts are tokenized on another thread: libllama takes about a microsecond per character. */
const TEXT_LENGTH_AT_ONCE = 16_384;
/** Conversations of more messages are rendered on another thread: a template takes some 30 microseconds per message. */
const MESSAGES_AT_ONCE = 256;
/** A template copies every text a few times, and checks each with regular expressions. */
const CONVERSATION_LENGTH_AT_ONCE = 262_144;

export const isLongText = (text: string): boolean => text.length > TEXT_LENGTH_AT_ONCE;

export function isLongConversation(messages: readonly ChatMessage[]): boolean {
  if (messages.length > MESSAGES_AT_ONCE) return true;
  const length = messages.reduce((sum, { content }) => sum + (typeof content === 'string' ? content.length : 0), 0);
  return length > CONVERSATION_LENGTH_AT_ONCE;
}

/**
 * Refuses a text whose length alone shows that it cannot fit the model. The check is cheap, so it runs before the text is
 * tokenized.
 * @throws KvasirError `promptTooLong`.
 */
export function checkTextFits(text: string, tokenizer: Pick<Tokenizer, 'tokenBytesMax'>, model: ModelInfo): void {
  const { maxModelLen } = model;
  // Every UTF-16 unit is at least one byte, and most texts are too short for the count to matter.
  if (text.length * 3 < maxModelLen * tokenizer.tokenBytesMax) return;
  const tokensMin = Math.ceil(Buffer.byteLength(text) / tokenizer.tokenBytesMax);
  if (tokensMin >= maxModelLen) {
    throw promptTooLong({ promptTokens: `at least ${tokensMin}`, maxTokens: 1, maxModelLen });
  }
}

import { KvasirError } from '../../../base/errors.ts';
import { promptTooLong } from '../../../core/errors.ts';
import type { ConversationItem } from './conversation-items.ts';

/**
 * `truncation: "auto"`: the longest end of the conversation that fits. It begins with the system message, if there is one, and then
 * with a message of the user, because an answer or the result of a call means nothing without what came before.
 *
 * `prepare` throws `promptTooLong` for items that do not fit. It is called about log2(n) times for n messages of the user.
 */
export async function truncated<T>(
  items: readonly ConversationItem[],
  prepare: (items: readonly ConversationItem[]) => Promise<T>,
): Promise<T> {
  const head = items.findIndex((item) => !isSystem(item));
  const starts = items.flatMap((item, i) => (i > head && isUser(item) ? [i] : []));
  const attempt = async (start: number): Promise<{ readonly prepared: T } | { readonly tooLong: unknown }> => {
    try {
      const kept = start === 0 ? items : [...items.slice(0, head), ...items.slice(start)];
      return { prepared: await prepare(kept) };
    } catch (error) {
      if (error instanceof KvasirError && error.code === promptTooLong.definition.code) return { tooLong: error };
      throw error;
    }
  };
  const whole = await attempt(0);
  if ('prepared' in whole) return whole.prepared;
  let best: { readonly prepared: T } | undefined;
  let failure = whole.tooLong;
  for (let low = 0, high = starts.length; low < high; ) {
    const middle = Math.floor((low + high) / 2);
    const result = await attempt(starts[middle]!);
    if ('prepared' in result) {
      best = result;
      high = middle;
    } else {
      failure = result.tooLong;
      low = middle + 1;
    }
  }
  if (best === undefined) throw failure;
  return best.prepared;
}

const isSystem = (item: ConversationItem): boolean =>
  item.kind === 'message' && (item.role === 'system' || item.role === 'developer');
const isUser = (item: ConversationItem): boolean => item.kind === 'message' && item.role === 'user';

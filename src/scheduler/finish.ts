import type { TokenId } from '../core/ids.ts';
import type { RequestUpdate } from '../core/request.ts';
import type { RequestState } from './request-state.ts';

/** Whether the last token ends the request. The engine checks stop *strings*, because the scheduler has no text. */
export function finishOf(
  state: RequestState,
  token: TokenId | undefined,
  maxModelLen: number,
): RequestUpdate['finish'] {
  const { params, eosTokenIds, constraint } = state.request;
  // With `maxTokens` 0, the request asks for results of its prompt only.
  if (token === undefined) return { reason: 'length' };
  // The sampler gives an EOS token only where the grammar ends. `minTokens` and `ignoreEos` cannot continue a grammar.
  if (constraint !== undefined && eosTokenIds.includes(token)) return { reason: 'stop', stopToken: token };
  // Before `minTokens` the sampler masks stop tokens. If it samples one anyway, the request does not end.
  if (state.outputTokens >= params.minTokens) {
    const isEos = !params.ignoreEos && eosTokenIds.includes(token);
    if (isEos || params.stopTokenIds.includes(token)) return { reason: 'stop', stopToken: token };
  }
  if (state.isCompleteWithoutEos) return { reason: 'stop' };
  if (state.outputTokens >= params.maxTokens || state.tokens.length >= maxModelLen) return { reason: 'length' };
  return undefined;
}

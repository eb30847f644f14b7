import type { TokenId } from '../core/ids.ts';
import type { RequestUpdate } from '../core/request.ts';
import type { RequestState } from './request-state.ts';

/** Whether the token that was appended last ends the request. Stop *strings* are the engine's: tokens are not text. */
export function finishOf(state: RequestState, token: TokenId, maxModelLen: number): RequestUpdate['finish'] {
  const { params, eosTokenIds } = state.request;
  // The sampler masks these before `minTokens`; a token that slipped through must not end the request either.
  if (state.outputTokens >= params.minTokens) {
    const isEos = !params.ignoreEos && eosTokenIds.includes(token);
    if (isEos || params.stopTokenIds.includes(token)) return { reason: 'stop', stopToken: token };
  }
  if (state.outputTokens >= params.maxTokens || state.tokens.length >= maxModelLen) return { reason: 'length' };
  return undefined;
}

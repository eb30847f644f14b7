import type { TokenId } from '../core/ids.ts';
import type { RequestUpdate } from '../core/request.ts';
import type { RequestState } from './request-state.ts';

/** Whether the last token ends the request. The engine checks stop *strings*, because the scheduler has no text. */
export function finishOf(state: RequestState, token: TokenId, maxModelLen: number): RequestUpdate['finish'] {
  const { params, eosTokenIds } = state.request;
  // Before `minTokens` the sampler masks stop tokens. If it samples one anyway, the request does not end.
  if (state.outputTokens >= params.minTokens) {
    const isEos = !params.ignoreEos && eosTokenIds.includes(token);
    if (isEos || params.stopTokenIds.includes(token)) return { reason: 'stop', stopToken: token };
  }
  if (state.outputTokens >= params.maxTokens || state.tokens.length >= maxModelLen) return { reason: 'length' };
  return undefined;
}

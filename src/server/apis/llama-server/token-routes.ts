import { isUtf8 } from 'node:buffer';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { FastifyInstance } from 'fastify';
import { renderConversation } from '../../../engine/chat/conversation.ts';
import type { AsyncEngine } from '../../../engine/contract.ts';
import { engineFor } from '../../generation/engine-for.ts';
import type { PromptRouteOptions } from '../../generation/prompt-route.ts';
import type { ParseLimits } from '../../generation/request.ts';
import { needsOfTokens } from '../../generation/request-needs.ts';
import { abortWhenGone, unlessGone } from '../../http/client-connection.ts';
import { LazyList } from '../../http/json-pieces.ts';
import { sendJson } from '../../http/send-json.ts';
import { detokenizeExample, tokenizeExample, tokenizeOthers } from '../../openapi/examples.ts';
import { parseDetokenize, parseTokenize } from '../openai/parse.ts';

/** Tokens of texts and texts of tokens, with the fields of vLLM and of llama-server. */
export function registerTokenRoutes(
  app: FastifyInstance,
  engine: AsyncEngine,
  { limits, options }: { readonly limits: ParseLimits; readonly options: PromptRouteOptions },
): void {
  app.post(
    '/tokenize',
    {
      config: {
        about: {
          summary: 'Tokens of a text or a conversation.',
          body: { example: tokenizeExample, others: tokenizeOthers, reads: [parseTokenize] },
        },
      },
    },
    async (request, reply) => {
      const parsed = parseTokenize(request.body, limits);
      const { input, addSpecial, parseSpecial, tokenStrings, withPieces } = parsed;
      engineFor(engine, parsed.model);
      const answer = await unlessGone(reply, abortWhenGone(reply).signal, async (signal) => {
        const text = typeof input === 'string' ? input : await renderConversation(engine, input, signal);
        // No request computes them, so they may be more than the context has.
        const tokens = await engine.tokenizePrompt(text, { addSpecial, parseSpecial, isCut: true, signal });
        const strings = tokenStrings ? tokenStringsOf(engine, tokens) : null;
        const answered = withPieces ? piecesOf(engine, tokens) : Array.from(tokens);
        const counts = { count: tokens.length, max_model_len: engine.model.maxModelLen };
        const body = { ...counts, tokens: answered, token_strs: strings };
        return { body, held: await options.memory.hold(needsOfTokens(tokens.length), signal, request.caller.tenant) };
      });
      if (answer === undefined) return reply;
      using _held = answer.held;
      return await sendJson(reply, answer.body, options);
    },
  );
  app.post(
    '/detokenize',
    {
      config: {
        about: {
          summary: 'The text of tokens.',
          body: { example: detokenizeExample, reads: [parseDetokenize] },
        },
      },
    },
    async (request, reply) => {
      const { model: asked, tokens } = parseDetokenize(request.body, limits);
      engineFor(engine, asked);
      using _held = await options.memory.hold(
        needsOfTokens(tokens.length),
        abortWhenGone(reply).signal,
        request.caller.tenant,
      );
      let prompt = '';
      for (const part of engine.detokenizeParts(tokens, { skipSpecialTokens: false })) {
        prompt += part;
        await nextTurn();
      }
      // Under vLLM's name, and llama-server's.
      return await sendJson(reply, { prompt, content: prompt }, options);
    },
  );
}

const tokenStringsOf = (engine: AsyncEngine, tokens: Int32Array): LazyList<string> =>
  new LazyList(function* () {
    for (const token of tokens) yield engine.detokenize([token], { skipSpecialTokens: false });
  });

/** As in llama-server, a piece that is only a part of a character is a list of bytes. */
const piecesOf = (engine: AsyncEngine, tokens: Int32Array): LazyList<object> =>
  new LazyList(function* () {
    for (const id of tokens) {
      const bytes = Buffer.from(engine.tokenBytes(id));
      yield { id, piece: isUtf8(bytes) ? bytes.toString() : Array.from(bytes) };
    }
  });

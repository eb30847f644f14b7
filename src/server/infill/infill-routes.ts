import type { FastifyInstance } from 'fastify';
import type { AsyncEngine } from '../../engine/contract.ts';
import { engineFor } from '../engine-for.ts';
import { promptsOf } from '../fill-in-middle.ts';
import { preparePrompts } from '../generation.ts';
import { type ParseLimits, parseCompletion } from '../openai-parse.ts';
import { infillExample } from '../openapi/examples.ts';
import type { RouteDescription } from '../openapi/openapi.ts';
import type { GenerationRoute } from '../routes.ts';
import { infillRenderer } from './infill-renderer.ts';
import { readInfill } from './read-infill-request.ts';

/** `/infill`: llama-server's API for editors, which ask for the text at the cursor. */
export function registerInfillRoute(
  app: FastifyInstance,
  engine: AsyncEngine,
  { limits, generations }: { readonly limits: ParseLimits; readonly generations: GenerationRoute },
): void {
  const about: RouteDescription = {
    summary: "The text at the cursor of an editor: llama-server's API.",
    body: {
      example: infillExample,
      reads: [readInfill, (body, given) => parseCompletion(readInfill(body, limits).body, given)],
    },
    answer: 'InfillAnswer',
    chunk: 'InfillChunk',
    media: 'text/event-stream',
  };
  app.post('/infill', { config: { about } }, (request, reply) =>
    generations.answer(request, reply, async (signal, place) => {
      const { body, suffix, extra, onlyPrompt, ignored } = readInfill(request.body, limits);
      const read = parseCompletion(body, limits);
      const chosen = engineFor(engine, read.model);
      const promptsAtOnce = place.enter(1);
      await place.turn(signal);
      const params = onlyPrompt ? { ...read.params, maxTokens: 0 } : read.params;
      const parsed = { ...read, params, continuousUsage: true, ignored: [...read.ignored, ...ignored] };
      const { maxModelLen } = engine.model;
      const tokensMax = maxModelLen - (params.maxTokens ?? 1);
      const text = { ...parsed, suffix, extra, tokensMax, parameter: 'input_suffix' };
      const texts = { prompts: await promptsOf(engine, text, signal), maxTokensDefault: maxModelLen };
      const prompts = await preparePrompts(engine, parsed, texts, signal);
      return { engine: chosen, parsed, prompts, promptsAtOnce, render: infillRenderer, idPrefix: 'cmpl-' };
    }),
  );
}

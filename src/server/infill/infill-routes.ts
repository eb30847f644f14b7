import type { Endpoint } from '../generation/endpoint.ts';
import { parseCompletion } from '../openai-parse.ts';
import { infillExample } from '../openapi/examples.ts';
import { infillRenderer } from './infill-renderer.ts';
import { readInfill } from './read-infill-request.ts';

/** `/infill`: llama-server's API for editors, which ask for the text at the cursor. */
export const infillEndpoint: Endpoint = {
  path: '/infill',
  about: {
    summary: "The text at the cursor of an editor: llama-server's API.",
    body: {
      example: infillExample,
      reads: [readInfill, (body, given) => parseCompletion(readInfill(body, given).body, given)],
    },
    answer: 'InfillAnswer',
    chunk: 'InfillChunk',
    media: 'text/event-stream',
  },
  idPrefix: 'cmpl-',
  read: (given, limits) => {
    const { body, suffix, extra, onlyPrompt, ignored } = readInfill(given, limits);
    const read = parseCompletion(body, limits);
    const params = onlyPrompt ? { ...read.params, maxTokens: 0 } : read.params;
    return { ...read, params, suffix, extra, suffixField: 'input_suffix', ignored: [...read.ignored, ...ignored] };
  },
  render: infillRenderer,
};

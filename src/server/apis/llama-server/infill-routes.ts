import type { Endpoint } from '../../generation/endpoint.ts';
import { infillExample } from '../../openapi/examples.ts';
import { infillRenderer } from './infill-renderer.ts';
import { readInfill } from './read-infill-request.ts';

/** `/infill`: llama-server's API for editors, which ask for the text at the cursor. */
export const infillEndpoint: Endpoint = {
  path: '/infill',
  about: {
    summary: "The text at the cursor of an editor: llama-server's API.",
    body: { example: infillExample, reads: [readInfill] },
    answer: 'InfillAnswer',
    chunk: 'InfillChunk',
    media: 'text/event-stream',
  },
  idPrefix: 'cmpl-',
  read: readInfill,
  render: infillRenderer,
};

/** The types of openapi-typescript, with openapi-fetch. */
import createClient from 'openapi-fetch';
import type { paths } from './openapi-typescript-types';

const client = createClient<paths>({ baseUrl: process.env.KVASIR_ORIGIN! });

async function main(): Promise<void> {
  const chat = await client.POST('/v1/chat/completions', {
    body: {
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: [{ type: 'text', text: 'Once' }] },
      ],
      max_tokens: 4,
      temperature: 0,
    },
  });
  const response = await client.POST('/v1/responses', {
    body: { input: 'Once', max_output_tokens: 4, temperature: 0 },
  });
  const wrong = await client.POST('/v1/chat/completions', { body: { messages: [] } });
  // The other form of an answer is a stream.
  if (chat.data === undefined || !('choices' in chat.data)) throw new Error('no chat');
  if (response.data === undefined || !('output' in response.data)) throw new Error('no response');
  console.log(
    JSON.stringify({
      chat: chat.data.choices[0]?.message.content,
      tokens: chat.data.usage?.total_tokens,
      response: response.data.status,
      error: wrong.error?.error.param,
    }),
  );
}

void main();

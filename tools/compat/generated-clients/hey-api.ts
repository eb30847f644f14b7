/** The client of @hey-api/openapi-ts. */
import { postV1ChatCompletions, postV1Responses } from './hey-api-client';
import { client } from './hey-api-client/client.gen';

client.setConfig({ baseUrl: process.env.KVASIR_ORIGIN! });

async function main(): Promise<void> {
  const chat = await postV1ChatCompletions({
    body: {
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: [{ type: 'text', text: 'Once' }] },
      ],
      max_tokens: 4,
      temperature: 0,
    },
  });
  const response = await postV1Responses({ body: { input: 'Once', max_output_tokens: 4, temperature: 0 } });
  const wrong = await postV1ChatCompletions({ body: { messages: [] } });
  console.log(
    JSON.stringify({
      chat: chat.data?.choices[0]?.message.content,
      tokens: chat.data?.usage?.total_tokens,
      response: response.data?.status,
      error: wrong.error?.error.param,
    }),
  );
}

void main();

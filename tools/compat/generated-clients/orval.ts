/** The client of orval. */
import { postV1ChatCompletions, postV1Responses } from './orval-client';

async function main(): Promise<void> {
  const chat = await postV1ChatCompletions({
    messages: [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: [{ type: 'text', text: 'Once' }] },
    ],
    max_tokens: 4,
    temperature: 0,
  });
  const response = await postV1Responses({ input: 'Once', max_output_tokens: 4, temperature: 0 });
  const wrong = await postV1ChatCompletions({ messages: [] });
  // The other form of an answer is a stream.
  if (!('choices' in chat.data) || !('output' in response.data)) throw new Error('no answer');
  if (wrong.status === 200) throw new Error('no error');
  console.log(
    JSON.stringify({
      chat: chat.data.choices[0]?.message.content,
      tokens: chat.data.usage?.total_tokens,
      response: response.data.status,
      error: wrong.data.error.param,
    }),
  );
}

void main();

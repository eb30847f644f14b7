/** A model in this process for the AI SDK. */
import { generateText, streamText } from 'ai';
import { createEngine } from 'kvasir';
import { createKvasir, kvasir } from 'kvasir/ai-sdk';

const path = 'path/to/model.gguf';

export async function provider(): Promise<void> {
  const provider = createKvasir({ model: path });
  const { text } = await generateText({ model: provider(), prompt: 'Tell me a story.', maxOutputTokens: 100 });
  console.log(text);
  await provider.close();
}

export async function ownEngine(): Promise<void> {
  await using engine = await createEngine({ model: path });
  const { textStream } = streamText({
    model: kvasir(engine),
    prompt: 'Tell me a story.',
    providerOptions: { kvasir: { minP: 0.05, cacheSalt: 'user-7' } },
  });
  for await (const piece of textStream) process.stdout.write(piece);
}

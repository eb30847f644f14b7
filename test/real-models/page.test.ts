/** The page in Chromium with a real model: a chat, and the loss of blocks in the Cache view. */
import { describe, expect, it } from 'vitest';
import { createEngine } from '../../src/compose.ts';
import { Server } from '../../src/server/server.ts';
import { hasChromium, needsChromium, useBrowser } from '../support/browser.ts';
import { inLongForm } from '../support/long-form.ts';
import { testsNeed } from '../support/needs.ts';
import { realModel, timeoutMs } from '../support/real-models.ts';

const browser = useBrowser();
const question = 'What is the capital of France?';

describe.each(inLongForm([realModel('smollm2')], []))('the page with $name', ({ path, isThere, reason }) => {
  testsNeed(hasChromium, needsChromium);
  testsNeed(isThere, reason);

  it(
    'streams an answer, and shows that lost blocks do not change a text',
    async () => {
      const engine = await createEngine({ model: path, threads: 1, kvCacheMemory: 64 << 20, maxModelLen: 1024 });
      const server = new Server(engine, { version: '0', logLevel: 'silent', enableFaultInjection: true });
      browser.closeAtEnd(() => server.app.close());
      browser.closeAtEnd(() => engine.close());
      const page = await browser.page(`http://127.0.0.1:${await server.listen(0, '127.0.0.1')}/`);
      await page.getByText('Settings').click();
      await page.getByLabel('Temperature').fill('0');
      await page.getByLabel('Max tokens').fill('24');
      await page.getByRole('textbox', { name: 'Message', exact: true }).fill(question);
      await page.keyboard.press('Enter');
      const answer = page.getByRole('article', { name: 'Answer' });
      await answer.getByRole('button', { name: 'Regenerate' }).waitFor();
      const prompt = engine.applyChatTemplate([{ role: 'user', content: question }]);
      let expected = '';
      for await (const { text } of engine.generate({ prompt, params: { temperature: 0, maxTokens: 24 } }))
        expected += text;
      expect(await answer.textContent()).toContain(expected.trim());
      await page.getByRole('link', { name: 'Cache' }).click();
      await page.locator('#experiment-text').fill('Name a colour.');
      await page.getByRole('button', { name: 'Compare' }).click();
      await page.getByText('The texts are equal, character by character.').waitFor();
      const [before, after] = await page.locator('.answer-text').allTextContents();
      expect(after).toBe(before);
    },
    timeoutMs,
  );
});

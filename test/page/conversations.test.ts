/**
 * What the chat keeps: questions, drafts, other tabs' messages, branches, files; search, export and import. The page on a phone, over plain
 * HTTP, with presets, several models and long prompts. In Chromium.
 */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { Server } from '../../src/server/server.ts';
import { expectNoHorizontalScroll, hasChromium, needsChromium, useBrowser } from '../support/browser.ts';
import {
  answers,
  gate,
  idle,
  lastMessage,
  list,
  messageField,
  openChat,
  promptOf,
  send,
  serveAgain,
  titles,
} from '../support/chat-page.ts';
import { LetterEngine } from '../support/letter-engine.ts';
import { itInLongForm } from '../support/long-form.ts';
import { needs } from '../support/needs.ts';
import { toyEngine } from '../support/toy-model.ts';

const browser = useBrowser();
const phone = { width: 390, height: 844 };

describe('the conversations of the page', needs(hasChromium, needsChromium), () => {
  it('keep question, growing answer and draft over a reload, and the answer goes on', async () => {
    const { open, beforeStep } = gate(5);
    const { engine, page } = await openChat(browser, { answer: 'x'.repeat(9), beforeStep });
    await send(page, 'A question');
    await answers(page).getByText('xxxxx').waitFor();
    await messageField(page).fill('not sent');
    await page.reload();
    await page.getByRole('article', { name: 'You' }).getByText('A question').waitFor();
    expect(await titles(page)).toEqual(['A question']);
    expect(await messageField(page).inputValue()).toBe('not sent');
    expect(await answers(page).textContent()).toMatch(/[^x]x{5}[^x].*Not complete/);
    open();
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.getByRole('button', { name: 'Regenerate' }).waitFor();
    expect(promptOf(engine)).toMatch(/<\|im_start\|>assistant\nx{5}$/);
    expect(await answers(page).textContent()).toMatch(/[^x]x{14}[^x]\D*9 tokens/);
  });

  it('of two tabs stay both, and so do the messages of both in one conversation', async () => {
    const { engine, page, url } = await openChat(browser, { answer: 'Yes.' });
    const other = await browser.page(url);
    await send(page, 'From the first tab');
    await idle(page);
    await send(other, 'From the second tab');
    await idle(other);
    await send(page, 'First again');
    await idle(page);
    expect(await titles(page)).toEqual(['From the first tab', 'From the second tab']);
    await expect.poll(() => titles(other)).toEqual(['From the first tab', 'From the second tab']);
    await list(other).getByRole('button', { name: 'From the first tab', exact: true }).click();
    expect(await answers(other).count()).toBe(2);
    await send(other, 'Second tab, first conversation');
    await answers(page).nth(2).waitFor();
    await idle(other);
    await send(page, 'Both');
    await idle(page);
    expect(promptOf(engine)).toContain('Second tab, first conversation<|im_end|>');
    await page.reload();
    await answers(page).nth(3).waitFor();
  });

  itInLongForm('answer in the background while another one is open', async () => {
    const { open, beforeStep } = gate(5);
    const { engine, page } = await openChat(browser, { answer: 'a long answer', beforeStep });
    await send(page, 'Slow');
    await answers(page).getByText('a lon').waitFor();
    await list(page).getByRole('button', { name: 'New chat' }).click();
    await messageField(page).fill('a draft');
    open();
    await send(page, 'Fast');
    await idle(page);
    await list(page).getByRole('button', { name: 'Slow', exact: true }).click();
    await answers(page).getByText('a long answer').waitFor();
    expect(engine.stats().aborts).toBe(0);
  });

  it('of a server that ends during an answer keep all that was written, and go on when it is back', async () => {
    const { beforeStep } = gate(5);
    const { page, server, url } = await openChat(browser, { answer: 'x'.repeat(9), beforeStep });
    await send(page, 'A question');
    await answers(page).getByText('xxxxx').waitFor();
    await server.close();
    await answers(page).getByText('The server cannot be reached').waitFor();
    await send(page, 'Later');
    await page.getByRole('alert').getByText('The server cannot be reached').waitFor();
    expect(await messageField(page).inputValue()).toBe('Later');
    const free = gate(5);
    const again = await serveAgain(browser, url, { answer: 'y'.repeat(9), beforeStep: free.beforeStep });
    await page.getByRole('button', { name: 'Continue' }).click();
    await answers(page).getByText('xxxxxyyyyy').waitFor();
    // As a supervisor ends it: the server has a last word.
    await again.server.drain(0);
    free.open();
    await answers(page).getByText('The engine is shutting down.').waitFor();
    await serveAgain(browser, url, { answer: 'zz' });
    await page.getByRole('button', { name: 'Continue' }).click();
    await answers(page).getByText('xxxxxyyyyyzz').waitFor();
    await page.getByRole('button', { name: 'Regenerate' }).waitFor();
    expect(await page.getByRole('button', { name: 'Continue' }).count()).toBe(0);
    await messageField(page).press('Enter');
    await answers(page).nth(1).getByText('zz').waitFor();
    await idle(page);
  });

  it('have branches: an edited message and another answer are beside the first ones', async () => {
    const { engine, page } = await openChat(browser, { answer: 'One.' });
    await send(page, 'First');
    await idle(page);
    expect(await titles(page)).toEqual(['First']);
    engine.answer = 'Two.';
    await page.getByRole('button', { name: 'Edit' }).click();
    await page.getByLabel('Edit the message').fill('Changed');
    await page.keyboard.press('Enter');
    await answers(page).getByText('Two.').waitFor();
    await idle(page);
    expect(await titles(page)).toEqual(['Changed']);
    expect(lastMessage(engine)).toBe('Changed');
    await page.getByText('2 / 2').waitFor();
    await page.reload();
    await page.getByRole('button', { name: 'Previous version' }).click();
    await answers(page).getByText('One.').waitFor();
    expect(await page.getByRole('article', { name: 'You' }).textContent()).toContain('First');
    engine.answer = 'Three.';
    await page.getByRole('button', { name: 'Regenerate' }).click();
    await answers(page).getByText('Three.').waitFor();
    await idle(page);
    await send(page, 'More');
    await idle(page);
    expect(promptOf(engine)).toContain('First<|im_end|>\n<|im_start|>assistant\nThree.<|im_end|>');
  });

  it('say when the limit of tokens has cut an answer, and go on with it', async () => {
    const { engine, page } = await openChat(browser, { answer: 'abcdef' });
    await page.getByText('Settings').click();
    await page.getByLabel('Max tokens').fill('4');
    await send(page, 'Alphabet');
    await answers(page).getByText('Cut at the limit of tokens').waitFor();
    engine.answer = 'ef';
    await page.getByRole('button', { name: 'Continue' }).click();
    await answers(page).getByText('abcdef').waitFor();
    await page.getByRole('button', { name: 'Regenerate' }).waitFor();
    expect(await answers(page).textContent()).not.toContain('Cut');
    expect(await page.getByRole('button', { name: 'Continue' }).count()).toBe(0);
  });

  itInLongForm('are found by a text, exported, and imported again', async () => {
    const { page } = await openChat(browser, { answer: 'A lighthouse.' });
    for (const question of ['Towers?', 'Other']) {
      await list(page).getByRole('button', { name: 'New chat' }).click();
      await send(page, question);
      await idle(page);
    }
    await page.getByRole('searchbox', { name: 'Search conversations' }).fill('TOWER');
    expect(await titles(page)).toEqual(['Towers?']);
    await page.getByRole('searchbox').fill('lighthouse');
    expect((await titles(page)).length).toBe(2);
    await page.getByRole('searchbox').fill('nothing like it');
    await page.getByText('No conversation has this text.').waitFor();
    await page.getByRole('searchbox').fill('');
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Export' }).click(),
    ]);
    expect(download.suggestedFilename()).toMatch(/^kvasir-conversations-[\d-]+\.json$/);
    const exported = readFileSync(await download.path(), 'utf8');
    await page.evaluate('localStorage.clear()');
    await page.reload();
    expect(await titles(page)).toEqual([]);
    const file = (text: string) => ({ name: 'c.json', mimeType: 'application/json', buffer: Buffer.from(text) });
    const input = page.locator('#import-file');
    for (const wrong of ['{', '{"conversations": 3}', '[{"id": "a", "messages": [{"role": "user"}]}]']) {
      await input.setInputFiles(file(wrong));
      await page.getByText('Nothing is imported.').waitFor();
    }
    // Twice: known conversations stay as they are.
    for (let time = 0; time < 2; time++) {
      await input.setInputFiles(file(exported));
      await page.getByText('2 conversations imported.').waitFor();
      expect(await titles(page)).toEqual(['Other', 'Towers?']);
    }
    await list(page).getByRole('button', { name: 'Towers?', exact: true }).click();
    await answers(page).getByText('A lighthouse.').waitFor();
  });

  itInLongForm('have text files, which the model reads with the message', async () => {
    const { engine, page } = await openChat(browser, { answer: 'Read.' });
    const file = (name: string, bytes: string | Buffer) => ({
      name,
      mimeType: 'text/plain',
      buffer: Buffer.from(bytes),
    });
    const input = page.locator('#attach-files');
    const large = file('large.txt', 'x'.repeat(10_000_000));
    await input.setInputFiles([
      file('a.md', 'One\n```\ncode\n```\n'),
      large,
      file('b.bin', Buffer.from([0, 159, 146])),
    ]);
    await page.getByRole('alert').getByText('large.txt is not attached: files may have 1 MiB').waitFor();
    await page.getByRole('alert').getByText('b.bin is not attached: it is no text').waitFor();
    await page.getByRole('list', { name: 'Attached files' }).getByText('a.md').waitFor();
    await page.reload();
    await page.getByRole('list', { name: 'Attached files' }).getByText('a.md').waitFor();
    await send(page, 'What is it?');
    await idle(page);
    expect(lastMessage(engine)).toBe('File a.md:\n````\nOne\n```\ncode\n```\n````\n\nWhat is it?');
    expect(await page.getByRole('list', { name: 'Attached files' }).count()).toBe(0);
    await page.getByText('File a.md').click();
    await page.getByRole('region', { name: 'File a.md' }).getByText('code').waitFor();
    await messageField(page).fill('word '.repeat(2_000_000));
    await page.getByRole('alert').getByText('pasted.txt is not attached: files may have 1 MiB').waitFor();
    await messageField(page).fill('word '.repeat(40_000));
    await page.getByRole('list', { name: 'Attached files' }).getByText('pasted.txt').waitFor();
    expect(await messageField(page).inputValue()).toBe('');
    await page.getByRole('button', { name: 'Remove pasted.txt' }).click();
    await input.setInputFiles([file('ticks.txt', '` '.repeat(500_000))]);
    await page.getByRole('button', { name: 'Send', exact: true }).click();
    await page.getByRole('alert').getByText("This model's maximum context length is 4096 tokens").waitFor();
  });

  itInLongForm('come from the storage of earlier versions of the page', async () => {
    const { page } = await openChat(browser);
    const old = [
      { id: 'a', title: 'Question', changedMs: 2, messages: [{ role: 'user', content: 'Question' }] },
      {
        id: 'b',
        title: 'Named',
        changedMs: 3,
        messages: [
          { role: 'user', content: 'x' },
          { role: 'assistant', content: 'y' },
        ],
      },
      { id: 7 },
    ];
    await page.evaluate(`localStorage.setItem('kvasir:/:conversations', ${JSON.stringify(JSON.stringify(old))})`);
    await page.reload();
    expect(await titles(page)).toEqual(['Named', 'Question']);
    await list(page).getByRole('button', { name: 'Named', exact: true }).click();
    await answers(page).getByText('y', { exact: true }).waitFor();
    await page.reload();
    expect(await titles(page)).toEqual(['Named', 'Question']);
  });

  itInLongForm('that are deleted stay deleted while their answer is written, here or in another tab', async () => {
    const { open, beforeStep } = gate(3);
    const { engine, page, url } = await openChat(browser, { answer: 'x'.repeat(20), beforeStep });
    const other = await browser.page(url);
    other.on('dialog', (dialog) => void dialog.accept());
    await send(page, 'Gone');
    await answers(page).getByText('xxx').waitFor();
    await list(other).getByRole('button', { name: 'Gone', exact: true }).hover();
    await list(other).getByRole('button', { name: 'Delete Gone' }).click();
    await expect.poll(() => engine.stats().aborts).toBe(1);
    open();
    await idle(page);
    expect(await answers(page).count()).toBe(0);
    await page.reload();
    await idle(page);
    expect(await titles(page)).toEqual([]);
  });

  itInLongForm('that have no room in the browser say so', async () => {
    const { page } = await openChat(browser, { answer: 'Yes.' });
    await page.evaluate(
      'for (let n = 2 ** 22; n > 0; n = Math.floor(n / 2)) try { localStorage.setItem("x" + n, "x".repeat(n)) } catch {}',
    );
    await send(page, 'Hi');
    await page.getByRole('alert').getByText('no room').waitFor();
    await answers(page).getByText('Yes.').waitFor();
  });
});

describe('the page on other devices and servers', needs(hasChromium, needsChromium), () => {
  itInLongForm(
    'on a phone has new lines, the name of the model, tables that scroll, and targets for fingers',
    async () => {
      const row = '| internationalization | 12,345,678 | responsibilities | acknowledgements |\n';
      const { engine, page, url } = await openChat(browser, { answer: `${row}|---|---|---|---|\n${row}` }, phone);
      const session = await page.context().newCDPSession(page);
      await session.send('Emulation.setDeviceMetricsOverride', { ...phone, deviceScaleFactor: 2, mobile: true });
      await session.send('Emulation.setTouchEmulationEnabled', { enabled: true });
      await page.goto(url);
      await page.getByText('letters').waitFor();
      await messageField(page).pressSequentially('a');
      await page.keyboard.press('Enter');
      await messageField(page).pressSequentially('b');
      expect(await messageField(page).inputValue()).toBe('a\nb');
      expect(engine.requests.length).toBe(0);
      await page.getByRole('button', { name: 'Send', exact: true }).click();
      await page.getByRole('button', { name: 'Regenerate' }).waitFor();
      await expectNoHorizontalScroll(page);
      // A word on one line: its cell is as high as a line.
      const cells = await answers(page)
        .locator('td')
        .evaluateAll((all) => all.map((cell) => cell.clientHeight));
      expect(Math.max(...cells)).toBeLessThan(50);
      await page.getByText('Settings').click();
      for (const view of ['Chats', 'Cache']) {
        const small = await page
          .locator('button:visible, select:visible, summary:visible, nav a:visible, input:visible')
          .evaluateAll((all) =>
            all
              .map((one) => ({ text: one.textContent, box: one.getBoundingClientRect() }))
              .filter(({ box }) => box.height < 44 || box.width < 44)
              .map(({ text, box }) => `${text}: ${box.width} x ${box.height}`),
          );
        expect(small).toEqual([]);
        await page.getByText(view, { exact: true }).click();
      }
    },
  );

  itInLongForm('shows answers that are nested too deep for the browser as their source', async () => {
    const nested = (count: number) => `$${'\\frac{1}{'.repeat(count)}x${'}'.repeat(count)}$`;
    const { engine, page } = await openChat(browser, { maxModelLen: 20_000 });
    // A little deeper than the page's limit.
    const answer = [nested(5), nested(60), `${'> '.repeat(310)}quote`, `${'- '.repeat(310)}item`].join('\n\n');
    for (const text of [answer, '>'.repeat(310), `${'['.repeat(300)}x`, `${'*a **b '.repeat(40)}`]) {
      engine.answer = text;
      await send(page, 'Nest');
      await page.getByRole('button', { name: 'Stop' }).waitFor({ state: 'hidden' });
      await answers(page).last().getByRole('button', { name: 'Regenerate' }).waitFor();
      await page.getByRole('button', { name: 'New chat' }).click();
    }
    engine.answer = answer;
    await send(page, `Again a${'\u0301'.repeat(100)}`);
    await answers(page).locator('.katex').waitFor();
    await idle(page);
    expect(await answers(page).textContent()).toContain(nested(60));
    expect(await answers(page).textContent()).toContain('> > > ');
    const accents = /\u0301+/g;
    const question = (await page.getByRole('article', { name: 'You' }).textContent())!;
    expect(Math.max(...[...question.matchAll(accents)].map(([run]) => run.length))).toBe(32);
  });

  itInLongForm('copies over plain HTTP from another machine', async () => {
    const server = new Server(new LetterEngine({ answer: 'Copy me.' }), {
      version: '0',
      logLevel: 'silent',
      allowedHosts: ['other.test'],
    });
    browser.closeAtEnd(() => server.app.close());
    const page = await browser.page(`http://other.test:${await server.listen(0, '127.0.0.1')}/`);
    expect(await page.evaluate('isSecureContext')).toBe(false);
    await send(page, 'Hi');
    await idle(page);
    await answers(page).getByRole('button', { name: 'Copy' }).click();
    await answers(page).getByRole('button', { name: 'Copied' }).waitFor();
    await messageField(page).focus();
    await page.keyboard.press('Control+V');
    expect(await messageField(page).inputValue()).toBe('Copy me.');
  });

  it('lets people choose one of several models', async () => {
    const engine = new LetterEngine({ answer: 'Yes.' });
    Object.assign(engine.model, { aliases: ['second'] });
    const server = new Server(engine, { version: '0', logLevel: 'silent' });
    browser.closeAtEnd(() => server.app.close());
    const page = await browser.page(`http://127.0.0.1:${await server.listen(0, '127.0.0.1')}/`);
    await page.getByLabel('Model').selectOption('second');
    await page.reload();
    await expect.poll(() => page.getByLabel('Model').inputValue()).toBe('second');
    const [request] = await Promise.all([
      page.waitForRequest((request) => request.url().endsWith('/v1/chat/completions')),
      send(page, 'Hi'),
    ]);
    expect(request.postDataJSON()).toMatchObject({ model: 'second' });
    await answers(page).getByText('Yes.').waitFor();
  });

  itInLongForm('shows how much of a long prompt is read', async () => {
    const { open, beforeStep } = gate(2);
    const { engine } = toyEngine({ beforeStep });
    const server = new Server(engine, { version: '0', logLevel: 'silent' });
    browser.closeAtEnd(() => server.app.close());
    browser.closeAtEnd(() => engine.close());
    const page = await browser.page(`http://127.0.0.1:${await server.listen(0, '127.0.0.1')}/`);
    await send(page, 'long '.repeat(18));
    await page.getByText('The model reads the prompt').waitFor();
    await page.getByText(/The model reads the prompt: [1-9]\d* of \d+ tokens\./).waitFor();
    open();
    await page.getByRole('button', { name: 'Regenerate' }).waitFor();
    expect(await answers(page).textContent()).not.toContain('reads the prompt');
  });

  it('keeps the end of an answer in sight when a window or the settings leave less room', async () => {
    const { page } = await openChat(browser, { answer: 'line\n\n'.repeat(40) });
    await send(page, 'Many lines');
    await idle(page);
    const turns = page.getByRole('region', { name: 'Messages' });
    const below = () => turns.evaluate((one) => one.scrollHeight - one.scrollTop - one.clientHeight);
    await page.setViewportSize({ width: 390, height: 600 });
    await expect.poll(below).toBeLessThan(2);
    await page.getByText('Settings').click();
    await page.getByLabel('Temperature').waitFor();
    await expect.poll(below).toBeLessThan(2);
    expect(await page.getByRole('button', { name: 'Jump to latest' }).isVisible()).toBe(false);
  });

  it('fits low windows, paper, and languages that are read from the right', async () => {
    const answer = `שלום עולם\n\n- אחת\n\n~~~js\nlet a;\n~~~\n\n${'line\n\n'.repeat(40)}`;
    const { page } = await openChat(browser, { answer });
    await send(page, `ab${'😀'.repeat(60)}`);
    await idle(page);
    expect(await titles(page)).toEqual([`ab${'😀'.repeat(22)}…`]);
    await page.setViewportSize({ width: 640, height: 400 });
    const directions = `[...document.querySelectorAll('.assistant .body > *')].slice(0, 2).map((one) => getComputedStyle(one).direction)`;
    expect(await page.evaluate(directions)).toEqual(['rtl', 'rtl']);
    expect(await page.evaluate(`getComputedStyle(document.querySelector('.code pre')).direction`)).toBe('ltr');
    await page.getByText('Settings').click();
    const button = await page.getByRole('button', { name: 'Send', exact: true }).boundingBox();
    expect(button!.y + button!.height).toBeLessThanOrEqual(400);
    await expectNoHorizontalScroll(page);
    await page.emulateMedia({ media: 'print' });
    expect(await page.getByRole('button', { name: 'Send', exact: true }).isVisible()).toBe(false);
    const turns = page.getByRole('region', { name: 'Messages' });
    expect(await turns.evaluate((one) => one.scrollHeight - one.clientHeight)).toBe(0);
  });

  it('works in a browser that keeps nothing, and says so', async () => {
    const { page } = await openChat(browser, { answer: 'kept', maxModelLen: 256 });
    await page.addInitScript(`for (const name of ['localStorage', 'sessionStorage'])
      Object.defineProperty(window, name, { get() { throw new DOMException('denied', 'SecurityError'); } });`);
    await page.reload();
    await send(page, 'Hello');
    await answers(page).getByText('kept').waitFor();
    await page.getByRole('alert').getByText('keeps nothing of this page').waitFor();
    expect(await titles(page)).toEqual(['Hello']);
    const long = 'too long '.repeat(40).trim();
    await send(page, long);
    await page.getByRole('alert').getByText("This model's maximum context length is 256 tokens").waitFor();
    expect(await messageField(page).inputValue()).toBe(long);
    await page.getByRole('button', { name: 'New chat' }).click();
    expect(await messageField(page).inputValue()).toBe('');
    await list(page).getByRole('button', { name: 'Hello', exact: true }).click();
    expect(await messageField(page).inputValue()).toBe(long);
  });

  itInLongForm('leaves the reader where he is, and jumps to the latest text on demand', async () => {
    const { open, beforeStep } = gate(600);
    const { page } = await openChat(
      browser,
      { answer: 'line\n\n'.repeat(120), beforeStep },
      { width: 900, height: 500 },
    );
    await send(page, 'Long');
    const turns = page.getByRole('region', { name: 'Messages' });
    const latest = page.getByRole('button', { name: 'Jump to latest' });
    await expect.poll(() => turns.evaluate((one) => one.scrollTop)).toBeGreaterThan(1000);
    expect(await latest.isVisible()).toBe(false);
    await turns.evaluate((one) => one.scrollTo({ top: 200 }));
    await latest.waitFor();
    open();
    await page.getByRole('button', { name: 'Regenerate' }).waitFor();
    expect(await turns.evaluate((one) => one.scrollTop)).toBe(200);
    await latest.click();
    await latest.waitFor({ state: 'hidden' });
    await list(page).getByRole('button', { name: 'Long', exact: true }).waitFor();
  });
});

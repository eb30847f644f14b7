/** The chat of the page at `/`, in Chromium, against the real server and an engine without a model. */
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { invalidParameter } from '../../src/core/errors.ts';
import { axeViolations, expectNoHorizontalScroll, hasChromium, needsChromium, useBrowser } from '../support/browser.ts';
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
  serveChat,
  titles,
} from '../support/chat-page.ts';
import { inLongForm, isLongForm, itInLongForm } from '../support/long-form.ts';
import { needs } from '../support/needs.ts';

const browser = useBrowser();

const axeAnswer = [
  '### Title\n\n###### Left out\n\n# Again',
  'Text with `code`, a [link](https://example.com) and $x$.',
  '```js\n// All colours: numbers, texts, names.\nfunction f(a) { return [1, "a", true, new Map(), /x/]; }\n```',
  '```html\n<p class="a">b</p>\n```',
  '> quote with `code`',
  '$$\na^2\n$$',
  '| a | b |\n|---|---|\n| 1 | 2 |',
].join('\n\n');

/** The page measures so many milliseconds for everything. */
const slowClock = (page: Page, stepMs: number): Promise<void> =>
  page.evaluate((step) => {
    let ms = 0;
    performance.now = () => (ms += step);
  }, stepMs);

describe('the chat page', needs(hasChromium, needsChromium), () => {
  it('says what the model is before the first message, if its file does', async () => {
    const description = 'A storyteller. Try "Tell me a story."';
    const { page } = await openChat(browser, { answer: 'Once.', description });
    await page.getByText(description).waitFor();
    await send(page, 'Hello');
    await idle(page);
    expect(await page.getByText(description).count()).toBe(0);
    await page.getByRole('button', { name: 'New chat' }).click();
    await page.getByText(description).waitFor();
  });

  it('streams an answer, and sends the whole conversation with the next message', async () => {
    const { engine, page } = await openChat(browser, { answer: 'Good morning.' });
    await send(page, 'Hello');
    await idle(page);
    expect(await answers(page).first().textContent()).toContain('Good morning.');
    await send(page, 'Again');
    await answers(page).nth(1).getByRole('button', { name: 'Regenerate' }).waitFor();
    expect(promptOf(engine)).toContain('Hello<|im_end|>\n<|im_start|>assistant\nGood morning.<|im_end|>');
    expect(lastMessage(engine)).toBe('Again');
  });

  it('shows Markdown: headings, lists, tables, links, formulas and coloured code with a copy button', async () => {
    const formulas = String.raw`Let \(a_1 < b\), at $5 or $6, and $x^2$. Broken: \(\frac{\) and \[open.

\[\mathbb{R} = \sqrt{y}\]
`;
    const answer =
      '# Plan\n\n1. one\n2. **two**\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n[docs](https://example.com)\n\n```js\nlet x = 1 < 2;\n```\n';
    const { page } = await openChat(browser, { answer: `${formulas}\n${answer}` });
    await page.evaluate(
      'navigator.clipboard.writeText = (text) => { globalThis.copied = text; return Promise.resolve(); }',
    );
    await send(page, 'Show it');
    await idle(page);
    const body = answers(page).first();
    expect(await body.getByRole('heading', { name: 'Plan' }).count()).toBe(1);
    expect(await body.locator('li').allTextContents()).toEqual(['one', 'two']);
    expect(await body.locator('strong').textContent()).toBe('two');
    expect(await body.locator('td').allTextContents()).toEqual(['1', '2']);
    expect(await body.getByRole('link', { name: 'docs' }).getAttribute('href')).toBe('https://example.com');
    expect(await body.locator('pre').textContent()).toBe('let x = 1 < 2;');
    expect(await body.locator('pre .hljs-keyword').textContent()).toBe('let');
    await body.locator('.katex').nth(2).waitFor();
    const sources = await body.locator('.katex annotation').allTextContents();
    expect(sources).toEqual(['a_1 < b', 'x^2', String.raw`\mathbb{R} = \sqrt{y}`]);
    expect(await body.getByRole('region', { name: 'Formula' }).locator('.katex-display').count()).toBe(1);
    expect(await body.locator('p').first().textContent()).toContain('at $5 or $6, and');
    expect(await body.locator('p').first().textContent()).toContain(String.raw`Broken: \(\frac{\) and \[open.`);
    await body.getByRole('button', { name: 'Copy code' }).click();
    expect(await page.evaluate('copied')).toBe('let x = 1 < 2;');
  });

  it('never makes markup, scripts or foreign requests of an answer', async () => {
    const answer = [
      '<img src=x onerror="globalThis.hacked = 1"> <script>globalThis.hacked = 2</script>',
      '<svg onload="globalThis.hacked = 3"></svg>',
      '[press](javascript:globalThis.hacked=4) [data](data:text/html,x) [ftp](ftp://example.com)',
      '![image](https://example.com/track.png) ![x](x" onerror="globalThis.hacked=5)',
      '[ref]\n\n[ref]: javascript:globalThis.hacked=6',
      '<a href="javascript:globalThis.hacked=7">html link</a>',
      String.raw`$\href{javascript:globalThis.hacked=9}{x}$ $\def\a{\a\a}\a$ $\includegraphics{https://example.com/y.png}$`,
      '```__proto__\n</code><img src=x>\n```\n\n```js\n"<b>&amp;lt;</b>" // <i>\n```',
    ].join('\n\n');
    const { page } = await openChat(browser, { answer });
    await send(page, 'Attack <img src=x onerror="globalThis.hacked=8">');
    await idle(page);
    const turns = page.getByRole('region', { name: 'Messages' });
    await turns.locator('.katex').first().waitFor();
    await turns.locator('.hljs-string').getByText('"<b>&amp;lt;</b>"', { exact: true }).waitFor();
    expect(await turns.locator('img, svg, script, iframe, b, i').count()).toBe(0);
    const links = await turns.locator('a').evaluateAll((all) => all.map((link) => (link as { href?: string }).href));
    expect(links).toEqual(['https://example.com/track.png']);
    expect(await turns.textContent()).toContain('<script>globalThis.hacked = 2</script>');
    await turns.getByText('press').click();
    expect(await page.evaluate('globalThis.hacked')).toBeUndefined();
    const written = page.evaluate('document.createElement("p").innerHTML = "<b>x</b>"');
    await expect(written).rejects.toThrow(/TrustedHTML/);
    expect(browser.takeProblems().join('\n')).toContain('TrustedHTML');
  });

  it('stops an answer at Escape and keeps the part that was written', async () => {
    const { open, beforeStep } = gate(5);
    const { engine, page } = await openChat(browser, { answer: 'x'.repeat(100), beforeStep });
    await send(page, 'Write');
    await answers(page).getByText('xxxxx').waitFor();
    await page.keyboard.press('Escape');
    await idle(page);
    expect(await answers(page).first().textContent()).toContain('xxxxx');
    expect(await answers(page).first().textContent()).toContain('Stopped');
    await expect.poll(() => engine.stats().aborts).toBe(1);
    open();
  });

  itInLongForm('regenerates an answer', async () => {
    const { engine, page } = await openChat(browser);
    await page.getByText('Settings').click();
    await page.getByLabel('Max tokens').fill('10');
    await send(page, 'Letters');
    await idle(page);
    await page.getByRole('button', { name: 'Regenerate' }).click();
    await expect.poll(() => engine.requests.length).toBe(2);
    await idle(page);
    expect(promptOf(engine, 1)).toBe(promptOf(engine, 0));
    expect(await answers(page).count()).toBe(1);
  });

  itInLongForm('edits a message and answers it anew', async () => {
    const { engine, page } = await openChat(browser, { answer: 'Yes.' });
    await send(page, 'First');
    await idle(page);
    await send(page, 'Second');
    await answers(page).nth(1).waitFor();
    await idle(page);
    await page.getByRole('button', { name: 'Edit' }).first().click();
    await page.getByLabel('Edit the message').fill('Changed');
    await page.keyboard.press('Enter');
    await expect.poll(() => engine.requests.length).toBe(3);
    await idle(page);
    expect(lastMessage(engine)).toBe('Changed');
    expect(promptOf(engine, 2)).not.toContain('First');
    expect(await answers(page).count()).toBe(1);
  });

  itInLongForm('keeps the text of a refused message, which is not part of the conversation', async () => {
    const { engine, page } = await openChat(browser, { maxModelLen: 256, answer: 'Short.' });
    await send(page, 'Hi');
    await idle(page);
    const long = 'a long message '.repeat(30).trim();
    await send(page, long);
    await page.getByRole('alert').getByText("This model's maximum context length is 256 tokens").waitFor();
    const field = messageField(page);
    expect(await field.inputValue()).toBe(long);
    expect(await answers(page).count()).toBe(1);
    await field.fill('shorter');
    await page.getByRole('button', { name: 'Try again' }).click();
    await answers(page).nth(1).waitFor();
    await idle(page);
    expect(promptOf(engine)).not.toContain('a long message');
    expect(lastMessage(engine)).toBe('shorter');
  });

  itInLongForm('keeps the answer if a regeneration is refused, and says why', async () => {
    const { page } = await openChat(browser, { answer: 'The first answer.' });
    await send(page, 'Hi');
    await idle(page);
    await page.getByText('Settings').click();
    await page.getByLabel('Temperature').fill('-1');
    await page.getByRole('button', { name: 'Regenerate' }).click();
    await page.getByRole('alert').getByText('Temperature in the settings must be from 0 to 2.').waitFor();
    expect(await answers(page).first().textContent()).toContain('The first answer.');
  });

  itInLongForm('shows an error in the middle of an answer with the part that was written', async () => {
    const { page } = await openChat(browser, { answer: 'x'.repeat(50), failAtStep: 10 });
    await send(page, 'Hi');
    await idle(page);
    const answer = answers(page).first();
    expect(await answer.textContent()).toContain('xxxxxxxxx');
    expect(await answer.textContent()).toContain('The engine failed while it computed this request.');
    expect(await answer.getByRole('button', { name: 'Regenerate' }).count()).toBe(1);
  });

  it('keeps conversations over a reload, with names, and deletes them', async () => {
    const { page } = await openChat(browser, { answer: 'Stored.' });
    await send(page, 'Remember me');
    await idle(page);
    await page.reload();
    await page.getByText('Stored.').waitFor();
    await list(page).getByRole('button', { name: 'Remember me', exact: true }).hover();
    await list(page).getByRole('button', { name: 'Rename Remember me' }).click();
    await page.getByLabel('Title').fill('A name');
    await page.keyboard.press('Enter');
    await list(page).getByRole('button', { name: 'New chat' }).click();
    expect(await answers(page).count()).toBe(0);
    await send(page, 'Another');
    await idle(page);
    expect(await titles(page)).toEqual(['Another', 'A name']);
    const question = page.getByRole('article', { name: 'You' });
    await list(page).getByRole('button', { name: 'A name', exact: true }).click();
    await question.getByText('Remember me').waitFor();
    await page.goBack();
    await question.getByText('Another').waitFor();
    await page.goForward();
    await question.getByText('Remember me').waitFor();
    await page.getByText('Cache', { exact: true }).click();
    await page.goBack();
    await question.getByText('Remember me').waitFor();
    page.on('dialog', (dialog) => void dialog.accept());
    await list(page).getByRole('button', { name: 'A name', exact: true }).hover();
    await list(page).getByRole('button', { name: 'Delete A name' }).click();
    await page.reload();
    expect(await titles(page)).toEqual(['Another']);
  });

  it('sends the system prompt and the sampling settings', async () => {
    const { engine, page } = await openChat(browser, { answer: 'Yes.' });
    await page.getByText('Settings').click();
    await page.getByLabel('System prompt').fill('Be brief.');
    await page.getByLabel('Temperature').fill('0.75');
    await page.getByLabel('Top-p').fill('0.33');
    await page.getByLabel('Min-p').fill('0.01');
    await page.getByLabel('Max tokens').fill('33');
    await page.getByLabel('Seed').fill('7');
    // Enter and the button, open and folded settings: all send.
    await messageField(page).fill('Hi');
    await page.getByText('Settings').click();
    await page.getByRole('button', { name: 'Send', exact: true }).click();
    await idle(page);
    expect(promptOf(engine)).toContain('<|im_start|>system\nBe brief.<|im_end|>');
    expect(engine.requests.at(-1)!.params).toMatchObject({
      ...{ temperature: 0.75, topP: 0.33, minP: 0.01, maxTokens: 33, seed: 7n },
    });
    await page.reload();
    expect(await page.locator('#settings-summary').textContent()).toContain(
      'temperature 0.75, top-p 0.33, min-p 0.01, at most 33 tokens, seed 7',
    );
  });

  it('keeps the settings of each conversation; a new one has those of the last new one', async () => {
    const { engine, page } = await openChat(browser, { answer: 'Yes.' });
    const system = page.getByLabel('System prompt');
    await page.getByText('Settings').click();
    await system.fill('Rhyme.');
    await send(page, 'First');
    await idle(page);
    // Of this conversation only.
    await system.fill('Rhyme twice.');
    await page.getByRole('button', { name: 'New chat' }).click();
    expect(await system.inputValue()).toBe('Rhyme.');
    await system.fill('Be brief.');
    await send(page, 'Second');
    await idle(page);
    expect(promptOf(engine)).toContain('system\nBe brief.<|im_end|>');
    await list(page).locator('li .open', { hasText: 'First' }).click();
    expect(await system.inputValue()).toBe('Rhyme twice.');
    await page.reload();
    expect(await page.getByLabel('System prompt').inputValue()).toBe('Rhyme twice.');
    await send(page, 'Again');
    await idle(page);
    expect(promptOf(engine)).toContain('system\nRhyme twice.<|im_end|>');
  });

  it('shows a growing answer as text if a paint takes longer than 50 ms, and formats it at its end', async () => {
    const free = gate(100);
    const { page } = await openChat(browser, { answer: '**bold** '.repeat(30), beforeStep: free.beforeStep });
    await slowClock(page, 60);
    await send(page, 'Loop');
    const answer = answers(page).first();
    await answer.locator('.body.plain').getByText('**bold** **bold**').waitFor();
    expect(await answer.locator('strong').count()).toBe(0);
    free.open();
    await idle(page);
    expect(await answer.locator('strong').count()).toBe(30);
  });

  it('does not format an answer whose paint would take longer than a second, until a person wants it', async () => {
    const { page } = await openChat(browser, { answer: '**bold** '.repeat(30) });
    await slowClock(page, 10_000);
    await send(page, 'Loop');
    await idle(page);
    const answer = answers(page).first();
    expect(await answer.locator('.body.plain').textContent()).toContain('**bold** **bold**');
    await answer.getByRole('button', { name: 'Show formatted' }).click();
    expect(await answer.locator('strong').count()).toBe(30);
  });

  it('names the field of the page in an error of the server', async () => {
    const throws = invalidParameter({ parameter: 'maxTokens', expected: 'less', actual: '7' });
    const { page } = await openChat(browser, { throws });
    await send(page, 'Hi');
    await page.getByRole('alert').getByText('Max tokens must be less, got 7.').waitFor();
  });

  itInLongForm('has presets of settings', async () => {
    const { page } = await openChat(browser);
    page.on('dialog', (dialog) => void dialog.accept(dialog.type() === 'prompt' ? 'Poet' : undefined));
    await page.getByText('Settings').click();
    await page.getByLabel('System prompt').fill('Rhyme.');
    await page.getByLabel('Min-p').fill('0.1');
    await page.getByRole('button', { name: 'Save as preset' }).click();
    const preset = page.getByLabel('Preset');
    expect(await preset.inputValue()).toBe('Poet');
    await preset.selectOption('Default');
    expect(await page.getByLabel('System prompt').inputValue()).toBe('');
    await page.reload();
    await page.getByText('Settings').click();
    await preset.selectOption('Poet');
    expect(await page.getByLabel('System prompt').inputValue()).toBe('Rhyme.');
    expect(await page.getByLabel('Min-p').inputValue()).toBe('0.1');
    await page.getByLabel('Seed').fill('3');
    expect(await preset.inputValue()).toBe('custom');
    await preset.selectOption('Poet');
    await page.getByRole('button', { name: 'Delete preset' }).click();
    expect(await preset.locator('option').allTextContents()).toEqual(['Default', 'Custom']);
  });

  itInLongForm('says which setting is wrong, and keeps the message', async () => {
    const { engine, page } = await openChat(browser, { answer: 'Yes.' });
    await page.getByText('Settings').click();
    const wrong: [string, string, string][] = [
      ['Temperature', '5', 'Temperature in the settings must be from 0 to 2.'],
      ['Top-p', '1.5', 'Top-p in the settings must be from 0 to 1.'],
      ['Max tokens', '2.5', 'Max tokens in the settings must be a whole number.'],
      ['Seed', '123456789012345678901', 'Seed in the settings must be'],
    ];
    for (const [label, value, problem] of wrong) {
      const before = await page.getByLabel(label).inputValue();
      await page.getByLabel(label).fill(value);
      await messageField(page).fill('Hi');
      await page.getByRole('button', { name: 'Send', exact: true }).click();
      await page.getByRole('alert').getByText(problem).waitFor();
      expect(await messageField(page).inputValue()).toBe('Hi');
      await page.getByLabel(label).fill(before);
    }
    await page.getByLabel('Seed').pressSequentially('1e');
    await page.getByRole('button', { name: 'Send', exact: true }).click();
    await page.getByRole('alert').getByText('Seed in the settings is no number.').waitFor();
    expect(engine.requests.length).toBe(0);
  });

  itInLongForm('folds thoughts, and shows calls of tools', async () => {
    const answer = '<think>\nA person asks.\n</think>\n\nThe answer.';
    const { page } = await openChat(browser, {
      answer,
      chatTemplate: '{%- if enable_thinking %}<think>\n</think>{%- endif %}',
    });
    await send(page, 'Think');
    await idle(page);
    const turn = answers(page).first();
    await turn.getByText('The answer.').waitFor();
    const thoughts = turn.getByText('A person asks.');
    expect(await thoughts.isVisible()).toBe(false);
    await turn.getByText('Reasoning').click();
    expect(await thoughts.isVisible()).toBe(true);
  });

  it('works by keyboard alone', async () => {
    const { engine, page } = await openChat(browser, { answer: 'Yes.' });
    const focusOn = async (name: string): Promise<void> => {
      for (let press = 0; press < 40; press++) {
        const focused = await page.evaluate(
          '(document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent ?? "").trim()',
        );
        if (String(focused).startsWith(name)) return;
        await page.keyboard.press('Tab');
      }
      throw new Error(`Tab does not reach ${name}`);
    };
    await page.keyboard.type('Keys');
    await page.keyboard.press('Enter');
    await idle(page);
    await focusOn('Edit');
    await page.keyboard.press('Enter');
    await page.keyboard.type(' only');
    await page.keyboard.press('Enter');
    await expect.poll(() => engine.requests.length).toBe(2);
    await idle(page);
    await focusOn('New chat');
    await page.keyboard.press('Space');
    expect(await answers(page).count()).toBe(0);
  });

  itInLongForm('has no horizontal scroll on a phone, where the conversations open above the messages', async () => {
    const answer = `\`\`\`\n${'long line '.repeat(30)}\n\`\`\`\n\n${'w'.repeat(200)}\n\n| ${'column | '.repeat(12)}\n|${'---|'.repeat(12)}\n`;
    const { page } = await openChat(browser, { answer }, { width: 390, height: 844 });
    await send(page, 'u'.repeat(200));
    await idle(page);
    await expectNoHorizontalScroll(page);
    expect(await list(page).isVisible()).toBe(false);
    await page.getByRole('button', { name: 'Chats' }).click();
    expect(await list(page).isVisible()).toBe(true);
    await expectNoHorizontalScroll(page);
    await list(page).getByRole('button', { name: 'New chat' }).click();
    expect(await list(page).isVisible()).toBe(false);
  });

  it.each(inLongForm(['light', 'dark'] as const, ['dark'] as const))(
    'has no problem that axe finds: %s',
    async (colorScheme) => {
      const { page } = await openChat(browser, {
        answer: axeAnswer,
      });
      await page.emulateMedia({ colorScheme });
      if (isLongForm) expect(await axeViolations(page)).toEqual([]);
      await send(page, 'Hi');
      await idle(page);
      await page.getByText('Settings').click();
      await answers(page).locator('.katex').nth(1).waitFor();
      expect(await axeViolations(page)).toEqual([]);
      if (!isLongForm) return;
      await page.setViewportSize({ width: 390, height: 844 });
      await page.getByRole('button', { name: 'Chats' }).click();
      expect(await axeViolations(page)).toEqual([]);
    },
  );

  it('asks for the API key that the server wants, and again when it has changed', async () => {
    const { url, server } = await serveChat(browser, { answer: 'Open.', apiKey: 'sesame' });
    const page = await browser.page(url);
    const key = page.getByRole('textbox', { name: 'Key' });
    await key.fill('wrong');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').getByText('The server does not accept this key.').waitFor();
    await key.fill('sesame');
    await page.keyboard.press('Enter');
    await page.getByText('letters').waitFor();
    await send(page, 'Hi');
    await page.getByText('Open.').waitFor();
    await idle(page);
    await server.close();
    await serveAgain(browser, url, { answer: 'Again.', apiKey: 'second' });
    // A request with the old key, whose answer comes after the new key is known.
    const late = gate();
    const [request] = await Promise.all([
      page.waitForRequest('**/props'),
      page
        .route('**/props', (route) => late.beforeStep().then(() => route.continue()))
        .then(() =>
          page.evaluate(
            "void import('./page/api.js').then(({ call }) => call('props')).then(({ status }) => { globalThis.late = status })",
          ),
        ),
    ]);
    expect(await request.headerValue('authorization')).toBe('Bearer sesame');
    await send(page, 'Hello');
    await page.getByRole('alert').getByText('The server does not accept this key.').waitFor();
    await key.fill('second');
    await page.keyboard.press('Enter');
    await answers(page).getByText('Again.').waitFor();
    await idle(page);
    late.open();
    await expect.poll(() => page.evaluate('globalThis.late')).toBe(200);
    expect(await key.isVisible()).toBe(false);
  });
});

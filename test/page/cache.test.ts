/** The Cache view of the page, in Chromium: the pool of a running request, lost blocks, and a text that does not change. */
import type { Page } from 'playwright-core';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { createEngine } from '../../src/compose.ts';
import type { AsyncEngine } from '../../src/engine/contract.ts';
import { Server } from '../../src/server/server.ts';
import { axeViolations, expectNoHorizontalScroll, hasChromium, needsChromium, useBrowser } from '../support/browser.ts';
import { openEngineWithTier } from '../support/engine-with-tier.ts';
import { inLongForm, itInLongForm } from '../support/long-form.ts';
import { needs } from '../support/needs.ts';
import { realModel, timeoutMs } from '../support/real-models.ts';
import { smallDemo } from '../support/small-demo.ts';
import { temporaryFolder } from '../support/tiny-model.ts';
import { toyEngine } from '../support/toy-model.ts';

const browser = useBrowser();

async function openCache(
  engine: AsyncEngine,
  canLose = true,
  viewport?: { width: number; height: number },
  options: { readonly adminKey?: string } = {},
) {
  const server = new Server(engine, { version: '0', logLevel: 'silent', enableFaultInjection: canLose, ...options });
  const port = await server.listen(0, '127.0.0.1');
  browser.closeAtEnd(() => server.app.close());
  browser.closeAtEnd(() => engine.close());
  const page = await browser.page(`http://127.0.0.1:${port}/#cache`, viewport);
  await page.locator('#legend [data-state=free]').filter({ hasText: /[1-9]/ }).waitFor();
  return page;
}

const count = async (page: Page, state: string): Promise<number> =>
  Number((await page.locator(`#legend [data-state=${state}]`).textContent())!.replaceAll(',', ''));

const prompt = 'a prompt of some length';
const params = { temperature: 0.9, seed: 3n, maxTokens: 40, ignoreEos: true };

async function textOf(engine: AsyncEngine): Promise<string> {
  let text = '';
  for await (const delta of engine.generate({ prompt, params, requestId: 'shown' })) text += delta.text;
  return text;
}

/**
 * Steps from the eleventh on wait until the test lets them go, or ends. `paused`: the eleventh step is planned, so the blocks stay as they
 * are until then.
 */
function pausedEngine() {
  let [go, pause] = [() => {}, () => {}];
  const opened = new Promise<void>((resolve) => {
    go = resolve;
  });
  const paused = new Promise<void>((resolve) => {
    pause = resolve;
  });
  onTestFinished(() => go());
  const toy = toyEngine({
    beforeStep: (step) => {
      if (step <= 10) return Promise.resolve();
      pause();
      return opened;
    },
    scheduler: { enablePrefixCaching: false },
  });
  return { engine: toy.engine, go, paused };
}

describe('the Cache view', needs(hasChromium, needsChromium), () => {
  it('shows the blocks and the timeline of a running request, and of one that has ended', async () => {
    const { engine, go, paused } = pausedEngine();
    const page = await openCache(engine);
    const text = textOf(engine);
    await page.locator('.request-head', { hasText: 'shown' }).getByText('decode').waitFor();
    await paused;
    const { referenced } = engine.stats().blocks;
    expect(referenced).toBeGreaterThan(5);
    await expect.poll(() => count(page, 'referenced')).toBe(referenced);
    expect(await page.getByRole('img', { name: `Blocks of the pool: ${399 - referenced} free` }).count()).toBe(1);
    expect(await page.getByRole('img', { name: `${referenced} blocks, 0 invalid, 0 recomputed` }).count()).toBe(1);
    await page.getByText('Blocks as a table').click();
    await page.getByRole('row', { name: 'Group 0: full attention, 4 tokens a block' }).waitFor();
    go();
    await text;
    await page.locator('.request-head', { hasText: 'shown' }).getByText('finished').waitFor();
    await page.getByRole('img', { name: /^Timeline: (queued \d+ ms, )?decode \d+ ms$|^Timeline: queued/ }).waitFor();
    const pictures = () => page.evaluate('[...document.querySelectorAll("canvas")].map((one) => one.toDataURL())');
    const light = (await pictures()) as string[];
    await page.emulateMedia({ colorScheme: 'dark' });
    await expect
      .poll(async () => ((await pictures()) as string[]).map((picture, i) => picture !== light[i]))
      .toEqual([true, true, true]);
  });

  it('loses chosen blocks of a running request, shows the recovery, and the text is that of an undisturbed run', async () => {
    const reference = toyEngine();
    const expected = await textOf(reference.engine);
    await reference.engine.close();
    const { engine, go, paused } = pausedEngine();
    const page = await openCache(engine);
    const text = textOf(engine);
    await page.locator('.request-head', { hasText: 'shown' }).getByText('decode').waitFor();
    // The request has computed all tokens of the lost blocks.
    await paused;
    const loseBlocks = vi.spyOn(engine.cache!, 'loseBlocks');
    await page.getByLabel('or block numbers').fill('2, 4-5');
    await page.getByRole('button', { name: 'Lose blocks', exact: true }).click();
    // The loss follows the step in flight. On a busy machine, the request could end before the engine receives the loss.
    await expect.poll(() => loseBlocks.mock.calls.length).toBe(1);
    go();
    await page.getByText('3 blocks lost. 1 request had 12 tokens in them.').waitFor();
    expect(await text).toBe(expected);
    const row = page.locator('#requests li', { hasText: 'shown' });
    await row.getByText('12 computed again').waitFor();
    await row.getByRole('img', { name: '1 recovery' }).waitFor();
    await page.locator('.tile', { hasText: 'Recoveries' }).getByText('1', { exact: true }).waitFor();
  });

  itInLongForm(
    'compares two answers of the bundled model, one of them while blocks are lost: they are equal',
    async () => {
      const page = await openCache(await createEngine(smallDemo));
      await page.getByRole('button', { name: 'Compare' }).click();
      await page
        .getByText(
          /The texts are equal, character by character\. [1-9]\d* blocks lost, [1-9]\d* tokens computed again\./,
        )
        .waitFor();
      const [before, after] = await page.locator('.answer-text').allTextContents();
      expect(before!.length).toBeGreaterThan(50);
      expect(after).toBe(before);
    },
  );

  it('says how to allow the loss of blocks, if the server was started without the flag', async () => {
    const page = await openCache(toyEngine().engine, false);
    await page.getByText('Start the server with --enable-fault-injection').waitFor();
    expect(await page.getByRole('button', { name: 'Lose blocks', exact: true }).count()).toBe(0);
  });

  it('shows what is wrong with block numbers, and the errors of the server', async () => {
    const page = await openCache(toyEngine().engine);
    const problems = [
      ['9999', '`blocks` must be numbers of blocks, 1 to 399, got 9999.'],
      ['abc', '"abc" is no block. Write numbers and ranges, such as 3, 8-11.'],
      ['3, 4x', '"4x" is no block.'],
      ['1-99999', 'At most 4,096 blocks can be lost at a time.'],
      ['9-3', 'The range 9-3 ends before it begins.'],
    ] as const;
    for (const [text, problem] of problems) {
      await page.getByLabel('or block numbers').fill(text);
      await page.keyboard.press('Enter');
      await page.getByText(problem).waitFor();
    }
    await page.getByText('No request since this view was opened.').waitFor();
  });

  it('reads events only while it is open', async () => {
    const { engine } = toyEngine();
    const page = await openCache(engine);
    const row = page.locator('.request-head', { hasText: 'shown' });
    await page.getByRole('link', { name: 'Chat' }).click();
    await textOf(engine);
    await page.getByRole('link', { name: 'Cache' }).click();
    await page.locator('#legend [data-state=cached]').filter({ hasText: /[1-9]/ }).waitFor();
    // The request was not watched, so it has no row.
    expect(await row.count()).toBe(0);
  });

  it('shows tiers, and pins to administrators, who can end them', async () => {
    const folder = temporaryFolder();
    browser.closeAtEnd(async () => folder.remove());
    const engine = await openEngineWithTier({ tier: { type: 'fs', root_dir: folder.file('tier') } });
    const kv = engine.kv!;
    const text = 'Once upon a time there was a fox that counted mice. '.repeat(4);
    const request = { prompt: text, params: { maxTokens: 4, temperature: 0 } };
    const page = await openCache(engine, true, undefined, { adminKey: 'ops' });
    await page.getByText('Pins are for administrators.').waitFor();
    const dialog = page.getByRole('dialog', { name: 'API key' });
    // The page asks for the key when the button is used, not before.
    expect(await dialog.isVisible()).toBe(false);
    await page.getByRole('button', { name: 'Enter the admin key' }).click();
    await dialog.getByLabel('Key').fill('ops');
    await dialog.getByRole('button', { name: 'Continue' }).click();
    await page.getByText('No prefix is pinned.').waitFor();
    for await (const _ of engine.generate(request));
    const { cachedTokens } = await kv.lookup({ prompt: text });
    const onDisk = async () => (await kv.lookup({ prompt: text })).tokens.disk;
    await expect.poll(onDisk, { timeout: 60_000 }).toBe(cachedTokens);
    const { name, neededBlocks } = await kv.pin({ prompt: text }, { places: ['pool', 'host', 'disk'] });
    // Reports of tiers come with steps.
    for await (const _ of engine.generate(request));
    const row = page.getByRole('row', { name: name! });
    const places = `pool: ${neededBlocks} of ${neededBlocks} blocks cached, host: ${neededBlocks} blocks kept, disk: ${neededBlocks} blocks kept`;
    await row.getByText(places).waitFor();
    await row.getByText('in 60 minutes').waitFor();
    const cells = async (tier: string) =>
      page
        .locator('#tiers tr', { has: page.getByRole('rowheader', { name: tier, exact: true }) })
        .getByRole('cell')
        .allTextContents();
    for (const tier of ['host', 'disk']) {
      await expect.poll(async () => (await cells(tier))[2]).toBe(`${neededBlocks}`);
      const [holds, blocks] = await cells(tier);
      expect(holds).toMatch(/^\d+ KiB of (48 MiB|16 GiB)$/);
      expect(Number(blocks)).toBeGreaterThanOrEqual(neededBlocks);
    }
    expect(await axeViolations(page)).toEqual([]);
    const unpin = row.getByRole('button', { name: `Unpin ${name}` });
    await unpin.focus();
    await page.keyboard.press('Enter');
    await page.getByText('No prefix is pinned.').waitFor();
    expect(kv.pins().pins).toEqual([]);
    expect((await kv.tierPins()).disk?.pins).toEqual([]);
    await expectNoHorizontalScroll(page);
  });

  itInLongForm('has no horizontal scroll on a phone', async () => {
    const { engine } = toyEngine();
    const page = await openCache(engine, true, { width: 390, height: 844 });
    await textOf(engine);
    await page.locator('.request-head', { hasText: 'shown' }).getByText('finished').waitFor();
    await expectNoHorizontalScroll(page);
  });

  it.each(inLongForm(['light', 'dark'] as const, ['dark'] as const))(
    'has no problem that axe finds: %s',
    async (colorScheme) => {
      const { engine } = toyEngine();
      const page = await openCache(engine);
      await page.emulateMedia({ colorScheme });
      await textOf(engine);
      await page.locator('.request-head', { hasText: 'shown' }).getByText('finished').waitFor();
      await page.getByText('Blocks as a table').click();
      expect(await axeViolations(page)).toEqual([]);
    },
  );
});

for (const { name, path, isThere, reason } of inLongForm([realModel('smollm2')], []))
  describe(`the page with ${name}`, { ...needs(hasChromium, needsChromium), ...needs(isThere, reason) }, () => {
    it(
      'streams an answer, and shows that lost blocks do not change a text',
      async () => {
        const question = 'What is the capital of France?';
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

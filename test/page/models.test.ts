/** The choice of models on the page at `/`, in Chromium, against a server of several models without engines. */
import { describe, expect, it } from 'vitest';
import { hasChromium, needsChromium, useBrowser } from '../support/browser.ts';
import { answers, idle, list, messageField, send } from '../support/chat-page.ts';
import { type PoolOptions, serveModelsHere } from '../support/model-processes.ts';
import { needs } from '../support/needs.ts';
import { until } from '../support/until.ts';

const browser = useBrowser();

async function open(options: PoolOptions = {}) {
  const here = await serveModelsHere(options);
  browser.closeAtEnd(here.close);
  const page = await browser.page(`${here.origin}/`);
  const picker = page.getByRole('combobox', { name: 'Model', exact: true });
  await picker.waitFor();
  return { ...here, page, picker };
}

describe('the choice of models', needs(hasChromium, needsChromium), () => {
  it('chooses who answers, and each conversation keeps its model', async () => {
    const { page, picker, processOf } = await open();
    await picker.selectOption('b');
    await send(page, 'First');
    await idle(page);
    expect(processOf('a')).toBe(undefined);
    expect(processOf('b')!.engine.requests.length).toBe(1);
    await page.getByRole('button', { name: 'New chat' }).click();
    await picker.selectOption('a');
    await send(page, 'Second');
    await idle(page);
    expect(processOf('a')!.engine.requests.length).toBe(1);
    await list(page).getByText('First').click();
    expect(await picker.inputValue()).toBe('b');
    await page.reload();
    await list(page).getByText('Second').click();
    await expect.poll(() => picker.inputValue()).toBe('a');
    await list(page).getByText('First').click();
    expect(await picker.inputValue()).toBe('b');
  });

  it('shows how far the load of a model is, and then the answer', async () => {
    const { page, picker, processOf, started } = await open({ loads: false });
    await picker.selectOption('a');
    await send(page, 'Hello');
    await until(() => started.length === 1);
    const progress = { phase: 'weights', doneBytes: 43, totalBytes: 100, retryAfterSeconds: 1 } as const;
    processOf('a')!.progress({ ...progress, message: 'The server loads a: 43 %.' });
    await answers(page).getByText('The server loads a: 43 %.').waitFor();
    expect(await picker.locator('option').first().textContent()).toBe('a (loading, 43 %)');
    await processOf('a')!.load();
    await idle(page);
    await expect.poll(() => picker.locator('option').first().textContent()).toBe('a (loaded)');
    await page.getByText('4,096 tokens of context').waitFor();
  });

  it('says that a model could not be loaded, and gives the message back', async () => {
    const { page, picker, started } = await open({ loads: false });
    await picker.selectOption('b');
    await send(page, 'Hello');
    await until(() => started.length === 1);
    started[0]!.fail(new Error('broken'));
    await page.getByRole('alert').getByText('The model `b` could not be loaded').waitFor();
    expect(await messageField(page).inputValue()).toBe('Hello');
  });
});

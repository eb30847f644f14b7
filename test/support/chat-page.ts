import type { Page } from 'playwright-core';
import { Server } from '../../src/server/server.ts';
import type { useBrowser } from './browser.ts';
import { LetterEngine, type LetterEngineOptions } from './letter-engine.ts';

export interface Viewport {
  readonly width: number;
  readonly height: number;
}

/** The page of a server with an engine without a model. */
export async function openChat(
  browser: ReturnType<typeof useBrowser>,
  options: LetterEngineOptions = {},
  viewport?: Viewport,
) {
  const { engine, server, url } = await serveChat(browser, options);
  return { engine, server, url, page: await browser.page(url, viewport) };
}

/** A server at a port, or at one that the system chooses. */
export async function serveChat(
  browser: ReturnType<typeof useBrowser>,
  options: LetterEngineOptions & { readonly port?: number; readonly apiKey?: string } = {},
) {
  const { port = 0, apiKey, ...of } = options;
  const engine = new LetterEngine({ maxModelLen: 4096, ...of });
  const server = new Server(engine, { version: '0.0.0', logLevel: 'silent', ...(apiKey && { apiKey }) });
  browser.closeAtEnd(() => server.close());
  return { engine, server, url: `http://127.0.0.1:${await server.listen(port, '127.0.0.1')}/` };
}

/** Another server at the address of one that has ended. */
export const serveAgain = (
  browser: ReturnType<typeof useBrowser>,
  url: string,
  options: LetterEngineOptions & { readonly apiKey?: string },
) => serveChat(browser, { ...options, port: Number(new URL(url).port) });

export const idle = (page: Page) => page.getByRole('button', { name: 'Send', exact: true }).waitFor();
export const messageField = (page: Page) => page.getByRole('textbox', { name: 'Message', exact: true });
export const answers = (page: Page) => page.getByRole('article', { name: 'Answer' });
export const list = (page: Page) => page.getByRole('complementary', { name: 'Conversations' });
export const titles = (page: Page): Promise<string[]> => list(page).locator('li .open').allTextContents();

export async function send(page: Page, text: string): Promise<void> {
  await messageField(page).fill(text);
  await page.keyboard.press('Enter');
}

/** The prompt of a request, the last one by default, as text. */
export function promptOf(engine: LetterEngine, at = -1): string {
  return engine.detokenize(engine.requests.at(at)!.prompt as ArrayLike<number>, { skipSpecialTokens: false });
}

/** The message that the last request ends with. */
export const lastMessage = (engine: LetterEngine): string | undefined =>
  /<\|im_start\|>user\n([^<]*)<\|im_end\|>\n<\|im_start\|>assistant\n$/.exec(promptOf(engine))?.[1];

/** Steps after the first `free` ones wait until the test opens the gate. */
export function gate(free = 0) {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  let steps = 0;
  return { open, beforeStep: (): Promise<void> => (++steps > free ? opened : Promise.resolve()) };
}

import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type BrowserContext, chromium, type Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';

const executablePath = process.env.KVASIR_CHROMIUM ?? '/usr/bin/chromium';

export const hasChromium = existsSync(executablePath);
export const needsChromium = `no ${executablePath}`;

const quiet = [
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--host-resolver-rules=MAP other.test 127.0.0.1',
  '--disable-sync',
];
const args = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', ...quiet];

/** Debian's Chromium with an empty profile. */
class Browser {
  readonly #context: BrowserContext;
  readonly #folder: string;
  readonly #pages: Page[] = [];
  /** Errors of scripts, and violations of the content security policy. */
  readonly problems: string[] = [];

  private constructor(context: BrowserContext, folder: string) {
    this.#context = context;
    this.#folder = folder;
  }

  static async open(): Promise<Browser> {
    const folder = mkdtempSync(join(tmpdir(), 'kvasir-chromium-'));
    const context = await chromium.launchPersistentContext(folder, { executablePath, headless: true, args });
    return new Browser(context, folder);
  }

  async page(url: string, viewport = { width: 1280, height: 800 }): Promise<Page> {
    const page = await this.#context.newPage();
    this.#pages.push(page);
    page.setDefaultTimeout(60_000);
    await page.setViewportSize(viewport);
    page.on('pageerror', (error) => this.problems.push(String(error)));
    page.on('console', (message) => {
      if (/content security policy|trusted/i.test(message.text())) this.problems.push(message.text());
    });
    page.on('request', (request) => {
      if (!request.url().startsWith(new URL(url).origin)) this.problems.push(`loads ${request.url()}`);
    });
    await page.goto(url);
    return page;
  }

  /** An open page costs CPU time during all later tests. */
  async closePages(): Promise<void> {
    for (const page of this.#pages.splice(0)) await page.close();
  }

  async close(): Promise<void> {
    await this.#context.close();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** Opens a browser for the tests of a file. After them it must have seen no problem. `closeAtEnd`: is called after the browser is closed. */
export function useBrowser() {
  let browser: Browser;
  const closers: (() => Promise<unknown>)[] = [];
  beforeAll(async () => {
    if (hasChromium) browser = await Browser.open();
  });
  afterEach(async () => {
    if (hasChromium) await browser.closePages();
  });
  afterAll(async () => {
    if (!hasChromium) return;
    expect(browser.problems).toEqual([]);
    await browser.close();
    for (const close of closers) await close();
  });
  return {
    page: (url: string, viewport?: { width: number; height: number }): Promise<Page> => browser.page(url, viewport),
    /** The problems until now, which the check at the end then leaves out. */
    takeProblems: (): string[] => browser.problems.splice(0),
    closeAtEnd: (close: () => Promise<unknown>): void => void closers.push(close),
  };
}

const axe = readFileSync(join(process.cwd(), 'node_modules', 'axe-core', 'axe.min.js'), 'utf8');

interface AxeViolation {
  readonly id: string;
  readonly nodes: readonly { readonly target: readonly string[]; readonly failureSummary: string }[];
}

/** The violations that axe finds, each as a line. */
export async function axeViolations(page: Page): Promise<string[]> {
  await page.evaluate(axe);
  const violations = (await page.evaluate('axe.run().then(({ violations }) => violations)')) as AxeViolation[];
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${id}: ${target.join(' ')}: ${failureSummary}`),
  );
}

export async function expectNoHorizontalScroll(page: Page): Promise<void> {
  const width = await page.evaluate('document.documentElement.scrollWidth');
  expect(width).toBeLessThanOrEqual(page.viewportSize()!.width);
}

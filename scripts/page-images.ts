/**
 * `node dist/scripts/page-images.js [FOLDER]` takes the pictures of the page in `docs/images`, or in another folder, with two real models
 * and Chromium (`KVASIR_CHROMIUM`, default `/usr/bin/chromium`).
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { chromium, type Page } from 'playwright-core';
import { assert } from '../src/base/assert.ts';
import { realModels, realModelsFolder } from './real-models/catalogue.ts';
import { fetchModel } from './real-models/fetch-model.ts';

const DESKTOP = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844 };
const CODER = 'Qwen2.5-Coder-0.5B-Instruct';
const SYSTEM = 'You answer in Markdown: formulas in LaTeX, code in fences.';
const FIRST_QUESTION = 'What is a cache? One sentence.';

const images = process.argv[2] ?? join('docs', 'images');
const folder = realModelsFolder();
assert(folder !== undefined, 'the user has a folder for caches, or KVASIR_REAL_MODELS names a folder');
const models = { [CODER]: realModels['qwen2.5-coder'], 'SmolLM2-135M-Instruct': realModels.smollm2 };
for (const model of Object.values(models)) await fetchModel(model, folder);
const scratch = mkdtempSync(join(tmpdir(), 'kvasir-images-'));
const sections = Object.entries(models).map(([name, { file }]) => [name, { model: join(folder, file) }]);
const config = join(scratch, 'images.json');
writeFileSync(config, JSON.stringify({ models: Object.fromEntries(sections) }));
const limits = ['--kv-cache-memory', '32MiB', '--max-model-len', '2048', '--port', '0', '--enable-fault-injection'];
const tiers = ['--kv-offloading-size', '0.25', '--kv-tier', `disk:${join(scratch, 'tier')}`];
const command = [join('dist', 'bundle', 'src', 'main.js'), 'serve', '--config', config, ...limits, ...tiers];
const server = spawn(process.execPath, command);
const origin = await originOf(server.stderr);
const browser = await chromium.launch({
  executablePath: process.env.KVASIR_CHROMIUM ?? '/usr/bin/chromium',
  args: ['--headless', '--no-sandbox', '--disable-gpu'],
});
const page = await browser.newPage({ viewport: DESKTOP });
page.setDefaultTimeout(300_000);
await page.goto(origin);
await takeModels(page);
await takeChat(page);
await takeCache(page);
await browser.close();
server.kill();
rmSync(scratch, { recursive: true, force: true });

/** From the server's log, which is read to its end, so that the server can write. */
function originOf(log: Readable): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = '';
    log.on('data', (piece: Buffer) => {
      text += piece.toString();
      const [, found] = /address(?:=|":")(http:[^\s"]+)/.exec(text) ?? [];
      if (found !== undefined) resolve(found);
    });
    log.on('end', () => reject(new Error(`the server ended: ${text}`)));
  });
}

/** The same view in both themes. */
async function shoot(page: Page, name: string): Promise<void> {
  for (const theme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: theme === 'dark' ? 'dark' : 'light' });
    const path = join(images, theme === 'dark' ? `${name}-dark.png` : `${name}.png`);
    await page.screenshot({ path, animations: 'disabled' });
  }
}

/** The first question waits until the chosen model is loaded. */
async function takeModels(page: Page): Promise<void> {
  await page.getByRole('combobox', { name: 'Model', exact: true }).selectOption(CODER);
  await page.getByText('Settings').click();
  await page.getByLabel('Temperature').fill('0');
  await page.getByLabel('Max tokens').fill('400');
  await page.getByLabel('System prompt').fill(SYSTEM);
  await shoot(page, 'settings');
  await page.getByText('Settings').click();
  await ask(page, 'Hello!');
  await page
    .getByText(/loads .* %/)
    .first()
    .waitFor();
  await shoot(page, 'models');
}

async function takeChat(page: Page): Promise<void> {
  await answer(page, 0);
  await page.getByRole('button', { name: 'New chat' }).click();
  await ask(page, FIRST_QUESTION);
  await answer(page, 0);
  const question =
    'Give the formula of the sum of the squares from 1 to n in LaTeX, a Markdown table of the sums for n = 1, 2 and 3, and a short TypeScript function.';
  await ask(page, question);
  await answer(page, 1);
  await shoot(page, 'chat');
  await page.setViewportSize(PHONE);
  await page.getByLabel('Messages').evaluate((turns) => turns.scrollBy({ top: -340 }));
  await shoot(page, 'phone');
  await page.setViewportSize(DESKTOP);
}

async function takeCache(page: Page): Promise<void> {
  await pinQuestion(origin);
  await page.getByRole('link', { name: 'Cache' }).click();
  const pins = page.getByRole('region', { name: 'Pins as a table' });
  await pins.getByText(/^pin-/).waitFor();
  await page.getByRole('cell', { name: /MiB/ }).last().waitFor();
  await pins.scrollIntoViewIfNeeded();
  await shoot(page, 'tiers');
  await page.locator('#experiment-text').fill('Explain in two sentences what a prime number is.');
  await page.getByRole('button', { name: 'Compare' }).click();
  await page.getByText('The texts are equal, character by character.').waitFor();
  await page.mouse.wheel(0, -2000);
  await shoot(page, 'cache');
}

/** Pins the prompt of the first question in all places, and asks it again, so that a tier has given blocks. */
async function pinQuestion(origin: string): Promise<void> {
  const messages = [
    { role: 'system', content: SYSTEM },
    { role: 'user', content: FIRST_QUESTION },
  ];
  const post = async (path: string, body: object): Promise<void> => {
    const headers = { 'content-type': 'application/json' };
    const url = `${origin}${path}?model=${encodeURIComponent(CODER)}`;
    const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
    assert(response.ok, `${path} has failed: ${await response.text()}`);
  };
  await post('/cache/pin', { model: CODER, messages, places: ['pool', 'host', 'disk'] });
  await post('/reset_prefix_cache', {});
  await post('/v1/chat/completions', { model: CODER, messages, max_tokens: 1 });
}

async function ask(page: Page, text: string): Promise<void> {
  await page.getByRole('textbox', { name: 'Message', exact: true }).fill(text);
  await page.keyboard.press('Enter');
}

/** Waits until the answer is complete. */
async function answer(page: Page, at: number): Promise<void> {
  const shown = page.getByRole('article', { name: 'Answer' }).nth(at);
  await shown.getByRole('button', { name: 'Regenerate' }).waitFor();
}

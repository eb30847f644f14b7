/**
 * `node dist/scripts/page-images.js` takes the pictures of the page in `docs/images`, with Qwen2.5-Coder and Chromium
 * (`KVASIR_CHROMIUM`, default `/usr/bin/chromium`).
 */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { chromium, type Page } from 'playwright-core';
import { assert } from '../src/base/assert.ts';
import { realModels, realModelsFolder } from './real-models/catalogue.ts';
import { fetchModel } from './real-models/fetch-model.ts';

const folder = realModelsFolder();
assert(folder !== undefined, 'the user has a folder for caches, or KVASIR_REAL_MODELS names a folder');
const model = realModels['qwen2.5-coder'];
await fetchModel(model, folder);
const limits = ['--kv-cache-memory', '32MiB', '--max-model-len', '2048', '--port', '0', '--enable-fault-injection'];
const command = [join('dist', 'src', 'main.js'), 'serve', join(folder, model.file), ...limits];
const server = spawn(process.execPath, [...command, '--served-model-name', 'Qwen2.5-Coder-0.5B-Instruct']);
const origin = await originOf(server.stderr);
const browser = await chromium.launch({
  executablePath: process.env.KVASIR_CHROMIUM ?? '/usr/bin/chromium',
  args: ['--headless', '--no-sandbox', '--disable-gpu'],
});
const page = await browser.newPage();
page.setDefaultTimeout(300_000);
await takeChat(page);
await takeCache(page);
await browser.close();
server.kill();

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

async function takeChat(page: Page): Promise<void> {
  await page.setViewportSize({ width: 1280, height: 760 });
  await page.goto(origin);
  await page.getByText('Settings').click();
  await page.getByLabel('Temperature').fill('0');
  await page.getByLabel('Max tokens').fill('220');
  await page.getByText('Settings').click();
  const questions = ['What is a cache? One sentence.', 'Write isPrime in TypeScript. Only code.'];
  for (const [index, question] of questions.entries()) {
    await page.getByRole('textbox', { name: 'Message', exact: true }).fill(question);
    await page.keyboard.press('Enter');
    const answer = page.getByRole('article', { name: 'Answer' }).nth(index);
    await answer.getByRole('button', { name: 'Regenerate' }).waitFor();
  }
  await page.screenshot({ path: join('docs', 'images', 'chat.png') });
}

async function takeCache(page: Page): Promise<void> {
  await page.setViewportSize({ width: 1280, height: 1130 });
  await page.getByRole('link', { name: 'Cache' }).click();
  await page.locator('#experiment-text').fill('Explain in two sentences what a prime number is.');
  await page.getByRole('button', { name: 'Compare' }).click();
  await page.getByText('The texts are equal, character by character.').waitFor();
  await page.screenshot({ path: join('docs', 'images', 'cache.png') });
}

import { describe, expect, it } from 'vitest';
import { LetterEngine } from '../../../test/support/letter-engine.ts';
import { Server } from '../server.ts';
import { packageFiles, pageFiles } from './page-routes.ts';

async function withServer<T>(use: (url: string) => Promise<T>): Promise<T> {
  const server = new Server(new LetterEngine(), { version: '0.0.0', apiKey: 'sesame', logLevel: 'silent' });
  try {
    return await use(`http://127.0.0.1:${await server.listen(0, '127.0.0.1')}`);
  } finally {
    await server.app.close();
  }
}

describe('the files of the page', () => {
  it('are served without a key, with a policy that allows only files of this server', () =>
    withServer(async (url) => {
      const page = await fetch(`${url}/`);
      expect(page.status).toBe(200);
      expect(page.headers.get('content-type')).toBe('text/html; charset=utf-8');
      const policy = page.headers.get('content-security-policy')!;
      expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'");
      expect(policy).toContain("require-trusted-types-for 'script'");
      expect(policy).not.toMatch(/unsafe|\*|https?:/);
    }));

  it('are all that the page and its scripts name', () =>
    withServer(async (url) => {
      const html = await (await fetch(`${url}/`)).text();
      const names = [...html.matchAll(/(?:src|href)="(page\/[^"]+)"/g)].map(([, path]) => path!);
      expect(names.length).toBeGreaterThan(3);
      for (let at = 0; at < names.length; at++) {
        const response = await fetch(`${url}/${names[at]}`);
        expect(response.status, names[at]!).toBe(200);
        const text = await response.text();
        for (const [, file] of text.matchAll(/(?:from ?|import\()['"]\.\/([\w-]+\.js)['"]/g))
          if (!names.includes(`page/${file}`)) names.push(`page/${file}`);
      }
      const scripts = [...pageFiles().keys()].filter((name) => name.endsWith('.js'));
      expect(scripts.filter((name) => !names.includes(`page/${name}`))).toEqual([]);
    }));

  it('are not sent again while they are the same', () =>
    withServer(async (url) => {
      const first = await fetch(`${url}/page/app.js`);
      const etag = first.headers.get('etag')!;
      const again = await fetch(`${url}/page/app.js`, { headers: { 'if-none-match': etag } });
      expect(again.status).toBe(304);
      expect(await again.text()).toBe('');
    }));

  it('are no other files', () =>
    withServer(async (url) => {
      for (const name of ['page-routes.ts', '..%2fserver.ts', 'marked.d.ts', 'nothing.js', '__proto__'])
        expect((await fetch(`${url}/page/${name}`)).status, name).toBe(404);
    }));

  it('name no other hosts, and write no HTML from scripts', () => {
    const ofPackages = packageFiles();
    for (const [name, { bytes }] of pageFiles()) {
      if (ofPackages.has(name)) continue;
      const text = bytes.toString();
      expect(text.replaceAll('http://www.w3.org/2000/svg', ''), name).not.toMatch(/https?:\/\//);
      expect(text, name).not.toMatch(/innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function/);
    }
  });
});

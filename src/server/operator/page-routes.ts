import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, extname, join } from 'node:path';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { byName } from '../../base/by-name.ts';
import { sourceFile } from '../../base/package-files.ts';
import { routeNotFound } from '../http/server-errors.ts';

/**
 * The page: plain files that load nothing from other hosts and use only the public API. URLs in them are relative, so that the
 * page can be mounted below any path.
 */
interface PageFile {
  readonly bytes: Buffer;
  readonly type: string;
  readonly etag: string;
}

const types: Readonly<Record<string, string>> = byName({
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.woff2': 'font/woff2',
});

/** Trusted types: no script of the page can write HTML, so an answer of a model cannot become markup. */
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self'",
  "font-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ');

const headers = { 'content-security-policy': policy, 'x-content-type-options': 'nosniff', 'cache-control': 'no-cache' };

export function registerPage(app: FastifyInstance): void {
  // Now, because later there may be no free file descriptor.
  pageFiles();
  const config = { isPublic: true };
  const about = (summary: string) => ({ config: { ...config, about: { summary, media: 'text/html' } as const } });
  app.get('/', about('The page.'), (request, reply) => {
    const path = request.url.split('?', 1)[0]!;
    // Below a prefix: relative URLs need the slash at the end.
    if (!path.endsWith('/')) return reply.redirect(`${path.slice(path.lastIndexOf('/') + 1)}/`);
    return sendFile('index.html', request, reply);
  });
  app.get<{ Params: { file: string } }>('/page/:file', about('A file of the page.'), (request, reply) =>
    sendFile(request.params.file, request, reply),
  );
}

function sendFile(name: string, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const file = pageFiles().get(name);
  if (file === undefined) throw routeNotFound({ method: 'GET', path: request.url.slice(0, 200) });
  void reply.headers({ ...headers, 'content-type': file.type, etag: file.etag });
  if (request.headers['if-none-match'] === file.etag) return reply.status(304).send();
  return reply.send(file.bytes);
}

let files: ReadonlyMap<string, PageFile> | undefined;

/** Read once. The sources are in the package: the build does not change them. */
export function pageFiles(): ReadonlyMap<string, PageFile> {
  files ??= new Map([...readFolder(sourceFile('server/page')), ...packageFiles()]);
  return files;
}

/** Files of packages: Markdown, and what the page loads when an answer needs it: colours of code, and formulas with their fonts. */
export function packageFiles(): ReadonlyMap<string, PageFile> {
  const { resolve } = createRequire(import.meta.url);
  const katex = dirname(resolve('katex'));
  return new Map([
    ['marked.js', readFile(join(dirname(resolve('marked/package.json')), 'lib', 'marked.esm.js'))],
    ['highlight.js', readFile(resolve('@highlightjs/cdn-assets/es/highlight.min.js'))],
    ['katex.js', readFile(join(katex, 'katex.min.js'))],
    ['katex.css', fileOf('.css', Buffer.from(katexStyle(join(katex, 'katex.min.css'))))],
    ...[...readFolder(join(katex, 'fonts'))].filter(([name]) => name.endsWith('.woff2')),
  ]);
}

/** Names the fonts in one format, which all browsers read, and without a folder. */
function katexStyle(path: string): string {
  return readFileSync(path, 'utf8').replace(
    /url\(fonts\/([\w-]+\.woff2)\) format\("woff2"\)[^};]*/g,
    'url($1) format("woff2")',
  );
}

function readFolder(folder: string): [string, PageFile][] {
  const names = readdirSync(folder).filter((name) => types[extname(name)] !== undefined);
  return names.map((name) => [name, readFile(join(folder, name))]);
}

function readFile(path: string): PageFile {
  const type = extname(path);
  if (type === '.woff2') return fileOf(type, readFileSync(path));
  // The map file is not served.
  return fileOf(type, Buffer.from(readFileSync(path, 'utf8').replace(/^\/\/# sourceMappingURL=.*$/m, '')));
}

function fileOf(type: string, bytes: Buffer): PageFile {
  const etag = `"${createHash('sha256').update(bytes).digest('base64url').slice(0, 22)}"`;
  return { bytes, type: types[type]!, etag };
}

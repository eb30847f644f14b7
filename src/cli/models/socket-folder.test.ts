import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import { afterAll, expect, it } from 'vitest';
import { temporaryFolder } from '../../../test/support/tiny-model.ts';
import { SocketFolder } from './socket-folder.ts';

const folder = temporaryFolder();
afterAll(() => folder.remove());
/** Too long for sockets. */
const long = folder.file('long-'.repeat(20));
mkdirSync(long);

it('sockets are in a new folder of this user, which is removed at the end', async () => {
  const sockets = new SocketFolder([folder.file('.')]);
  const [first, second] = [sockets.next(), sockets.next()];
  const servers = [first, second].map((path) => createServer().listen(path));
  await Promise.all(servers.map((server) => once(server, 'listening')));
  const parent = first.replace(/\/[^/]*$/, '');
  expect([statSync(parent).mode & 0o777, readdirSync(parent)]).toEqual([0o700, ['1', '2']]);
  sockets.remove();
  expect(existsSync(parent)).toBe(false);
  for (const server of servers) server.close();
});

it('a folder whose path is too long for sockets, or that cannot be written, is passed over', () => {
  const sockets = new SocketFolder([long, folder.file('nowhere'), folder.file('.')]);
  expect(sockets.next()).toMatch(new RegExp(`^${folder.file('.')}/kvasir-`));
  expect(readdirSync(long)).toEqual([]);
  sockets.remove();
});

it('without a usable folder the server does not start, and says why', () => {
  const parents = [long, folder.file('nowhere')];
  expect(() => new SocketFolder(parents)).toThrow(
    `No folder can hold the sockets of the models: ${long} (longer than 79 bytes), ${folder.file('nowhere')} (ENOENT).`,
  );
});

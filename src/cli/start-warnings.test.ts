import { expect, it } from 'vitest';
import { serveHere } from '../../test/support/serve-here.ts';
import { isLoopback, startWarnings } from './start-warnings.ts';

const localHosts = ['localhost', 'LOCALHOST', 'kvasir.localhost', '127.0.0.1', '127.1', '127.8.9.1', '::1', '[::1]'];
const publicHosts = [
  '0.0.0.0',
  '::',
  '[::]',
  '10.0.0.7',
  '192.168.1.2',
  'gpu-1',
  'fe80::1',
  '128.0.0.1',
  'localhost.example.com',
];

it('tells addresses of this machine alone from others', () => {
  expect([...localHosts, '0:0:0:0:0:0:0:1', '::ffff:127.0.0.1'].filter((host) => !isLoopback(host))).toEqual([]);
  expect([...publicHosts, '', '::2', '::1:1', '1::1'].filter(isLoopback)).toEqual([]);
});

it('warns of a public address, of all web pages and of fault injection', () => {
  const warned = (flags: Partial<Parameters<typeof startWarnings>[0]>): string[] =>
    startWarnings({ host: '127.0.0.1', ...flags }).map(({ message }) => message.split(/[:,]/)[0]!);
  const noKey = 'There is no API key';
  for (const host of localHosts) expect(warned({ host })).toEqual([]);
  for (const host of publicHosts) expect(warned({ host })).toEqual([noKey]);
  expect(warned({ host: '0.0.0.0', apiKey: ['k'] })).toEqual([]);
  expect(warned({ host: '0.0.0.0', apiKeyLimits: {} })).toEqual([]);
  expect(warned({ allowedHosts: ['kvasir'], allowedOrigins: ['https://example.com'] })).toEqual([]);
  expect(warned({ allowedOrigins: ['*'] })).toEqual([noKey]);
  expect(warned({ allowedHosts: ['*'], apiKey: ['k'] })).toEqual([]);
  expect(warned({ enableFaultInjection: true, apiKey: ['k'] })).toEqual(['Fault injection is on']);
});

it('a server has the warnings in its log, with date and level, before it listens', async () => {
  const server = await serveHere(['--host', '0.0.0.0', '--enable-fault-injection']);
  await server.close();
  const lines = server.stderr().trimEnd().split('\n');
  expect(lines[0]).toMatch(
    /^\d{4}-\d\d-\d\dT[\d:.]+Z warn {2}There is no API key, and the server listens on 0\.0\.0\.0:/,
  );
  expect(lines[1]).toMatch(/Z warn {2}Fault injection is on:/);
  expect(lines[2]).toMatch(/Z info {2}listening on/);
  // Also the lines about the model and the shutdown.
  expect(lines.filter((line) => !/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (info |warn |error) /.test(line))).toEqual(
    [],
  );
  expect(lines.find((line) => / serving /.test(line))).toMatch(/ address=http:\/\/127\.0\.0\.1:\d+/);
  const quiet = await serveHere();
  await quiet.close();
  expect(quiet.stderr()).not.toContain(' warn ');
});

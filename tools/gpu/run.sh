#!/usr/bin/env bash
# Measures Kvasir on a machine with an NVIDIA GPU. Each step takes less than ten minutes, and its output is in bench/results, named by date, card and step.
#
#   tools/gpu/run.sh pack FOLDER        on a machine with npm's registry: Node, packages and ggml's CUDA backend, in parts of 60 MB
#   tools/gpu/run.sh take FILE ...      on the machine with the GPU, which needs no registry: the parts and parts.sha256, one or several at a time.
#                                       It must have libcudart and libcublas of CUDA 13 or 12, of a toolkit or of PyTorch
#   tools/gpu/run.sh STEP               test, faults, probe, bench, bench-7b, copies; in this order
#
# KVASIR_GPU_HOME: where parts and packages are kept (default: ~/kvasir-gpu). KVASIR_GPU_RESULTS: another folder for results.
# KVASIR_GPU_PACKAGE=vulkan packs ggml's Vulkan backend instead. On software Vulkan: tools/gpu/software-vulkan tools/gpu/run.sh STEP.
set -euo pipefail
cd "$(dirname "$0")/../.."
home="${KVASIR_GPU_HOME:-$HOME/kvasir-gpu}"

pack() {
  local folder=$1 version packages kind="${KVASIR_GPU_PACKAGE:-cuda}"
  version=$(sed -n "s/^export const NATIVE_PACKAGE_VERSION = '\(.*\)';$/\1/p" src/ggml/native-package.ts)
  packages=("@node-llama-cpp/linux-x64-$kind@$version")
  # The kernels of some cards are in a package of their own.
  if [ "$kind" = cuda ]; then packages+=("@node-llama-cpp/linux-x64-cuda-ext@$version"); fi
  local work
  work=$(mktemp -d)
  mkdir -p "$folder" "$work/bin"
  npm install --prefix "$work/gpu" --no-audit --no-fund --no-package-lock --ignore-scripts "${packages[@]}" > /dev/null
  cp "$(node -p process.execPath)" "$work/bin/node"
  # Without what only tests of clients, of the page and of the format of sources need.
  tar -C . -cf "$work/modules.tar" --exclude='node_modules/.vite*' --exclude='node_modules/.cache' \
    $(printf -- '--exclude=node_modules/%s ' @biomejs @langchain @anthropic-ai @opentelemetry @aws-sdk @smithy @ai-sdk langsmith openai ollama ai ai-6 js-tiktoken \
      playwright-core zeromq cmake-ts) node_modules
  rm -f "$folder"/part-*
  tar -C "$work" -cz bin gpu modules.tar | split -b 60000000 -a 2 - "$folder/part-"
  (cd "$folder" && sha256sum part-?? > parts.sha256)
  rm -rf "$work"
  ls -l "$folder"
}

# Keeps the parts. When all are there, unpacks them.
take() {
  mkdir -p "$home/parts"
  cp "$@" "$home/parts/"
  cd "$home/parts"
  if [ -e parts.sha256 ] && sha256sum --quiet -c parts.sha256 2> /dev/null; then
    cat part-?? | tar -C "$home" -xz
    echo "All parts are here. Run the steps."
  else
    echo "$(ls part-?? 2> /dev/null | wc -l) parts are here. parts.sha256 names all."
  fi
}

card() {
  (nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null || echo "${KVASIR_GPU_CARD:-unknown card}") | head -1 | tr -cs 'A-Za-z0-9\n' '-'
}

# The folders with CUDA's own libraries, which no package of npm has: of a toolkit or of PyTorch.
cuda_folders() {
  find /usr/local /usr/lib /opt "$HOME" \( -name 'libcudart.so.1[23]' -o -name 'libcublas.so.1[23]' \) -printf '%h\n' 2> /dev/null | sort -u | paste -sd:
}

step() {
  local name=$1 results="${KVASIR_GPU_RESULTS:-bench/results}"
  # What `take` has unpacked, else what is installed.
  if [ -d "$home/bin" ]; then
    export PATH="$home/bin:$PATH" NODE_PATH="$home/gpu/node_modules"
    [ -d node_modules ] || tar -xf "$home/modules.tar"
  fi
  export LD_LIBRARY_PATH="$(cuda_folders)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  node node_modules/typescript/bin/tsc -p tsconfig.build.json
  node dist/scripts/bundle.js
  mkdir -p "$results"
  {
    date -u +%FT%TZ
    nvidia-smi 2> /dev/null || true
    kvasir doctor --json | node -p 'JSON.stringify(JSON.parse(require("node:fs").readFileSync(0)).gpu, null, 1)'
    "step_${name//-/_}"
  } 2>&1 | tee "$results/$(date -u +%F)-gpu-$(card)-$name.txt"
}

kvasir() { node dist/bundle/src/main.js "$@"; }
vitest() { node node_modules/vitest/vitest.mjs run --config vitest.gpu.config.ts "$@"; }
model() {
  local path="$home/$1-$2.gguf"
  mkdir -p "$home"
  [ -e "$path" ] || node dist/bench/make-model/make-model.js "$path" "$2" "$1" >&2
  echo "$path"
}

step_test() { vitest test/gpu; }
# The demo shows each fault with servers; the schedules are random.
step_faults() {
  kvasir demo --stages "failed load, async" "corrupt bytes" "preempted, host memory"
  RECOVERY_WORKLOADS=2 vitest test/recovery-schedules.test.ts
}
step_probe() { node dist/scripts/gpu/gpu-facts.js probe; }
bench_shape() {
  local numerics
  for numerics in fast exact; do
    kvasir bench latency --model "$(model "$1" Q4_K_M)" --device gpu --numerics $numerics --peer libllama --repetitions 3 --depth 0,2048 ||
      echo "bench $1 $numerics: failed"
  done
}
step_bench() { bench_shape qwen2.5-0.5b; }
step_bench_7b() { bench_shape qwen2.5-7b; }
step_copies() { node dist/scripts/gpu/gpu-facts.js copies; }

case "${1:-}" in
  pack) pack "${2:?the folder for the parts}" ;;
  take) shift && take "$@" ;;
  test | faults | probe | bench | bench-7b | copies) step "$1" ;;
  *) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac

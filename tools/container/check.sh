#!/usr/bin/env bash
# Builds the Dockerfile without a registry of images and without Docker, and runs the image without rights.
# README.md beside this file says what this shows. Needs root, Debian or Ubuntu, and: apt-get install buildah mmdebstrap
#
#   tools/container/check.sh [FOLDER]     FOLDER keeps images between runs; default: a temporary folder
set -euo pipefail
cd "$(dirname "$0")/../.."
work=${1:-$(mktemp -d)}
mkdir -p "$work"
node_version=24.9.0
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
buildah() { command buildah --root "$work/store" --runroot "$work/run" "$@"; }
say() { printf '\n== %s\n' "$*"; }

# The place of `node:24-bookworm-slim`: Debian's smallest system, and Node from npm's package with its binary.
if ! buildah inspect --type image localhost/node:base > /dev/null 2>&1; then
  say "base image"
  [ -f "$work/base.tar" ] || mmdebstrap --variant=minbase --include=ca-certificates,libstdc++6 bookworm "$work/base.tar"
  (cd "$work" && npm pack --silent "node-linux-$(node -p process.arch)@$node_version" > /dev/null)
  container=$(buildah from scratch)
  root=$(buildah mount "$container")
  tar -C "$root" -xf "$work/base.tar"
  mkdir -p "$root/usr/local/lib/node_modules"
  tar -C "$root/usr/local" -xzf "$work"/node-linux-*-"$node_version".tgz --strip-components=1 package/bin/node
  cp -a "$(npm root -g)/npm" "$root/usr/local/lib/node_modules/npm"
  ln -s ../lib/node_modules/npm/bin/npm-cli.js "$root/usr/local/bin/npm"
  ln -s ../lib/node_modules/npm/bin/npx-cli.js "$root/usr/local/bin/npx"
  buildah umount "$container" > /dev/null
  buildah config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
  # Certificates of a proxy, if this machine has one.
  buildah config --env NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt "$container"
  buildah commit "$container" localhost/node:base > /dev/null
  buildah rm "$container" > /dev/null
fi

say "docker build"
buildah bud --layers --build-arg NODE_IMAGE=localhost/node:base -v /etc/ssl/certs:/etc/ssl/certs:ro -t localhost/kvasir:check .

container=$(buildah from --pull-never localhost/kvasir:check)
root=$(buildah mount "$container")
unmount() {
  buildah umount "$container" > /dev/null
  buildah rm "$container" > /dev/null
}
trap unmount EXIT

say "no compiler in the image"
for name in cc gcc clang c++ zig python3 make; do
  if chroot "$root" sh -c "command -v $name"; then
    echo "the image has $name"
    exit 1
  fi
done

# The user, the environment and the command of the image, with a root file system that nobody can write, no capability, no
# new rights, and namespaces of its own for mounts, processes and the network.
say "run: read-only root, user 10001, no capabilities"
python3 tools/container/run-image.py "$root" "$(buildah inspect --type image localhost/kvasir:check)"

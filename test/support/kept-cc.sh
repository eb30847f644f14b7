#!/bin/sh
# `sh kept-cc.sh <compiler> <arguments>`: compiles like the compiler with -O1, and keeps each output in `node_modules/.cache`. The next
# call with the same preprocessed source, flags and compiler copies the output. `quick-compiler.ts` says when tests use it.
compiler=$1
shift
test "$1" = --version && exec "$compiler" --version
if command -v sha256sum > /dev/null; then hash=sha256sum; else hash='shasum -a 256'; fi

# Removes the output from the arguments. The kept output does not depend on the paths of the source and its headers.
output=a.out
flags=''
previous=''
for argument; do
  shift
  case "$previous $argument" in
    *\ -o) ;;
    -o\ *) output=$argument ;;
    *) set -- "$@" "$argument" ;;
  esac
  case "$previous $argument" in
    -o\ * | *\ -o | *\ -I* | *.c | *.h) ;;
    *) flags="$flags $argument" ;;
  esac
  previous=$argument
done

source=$(mktemp) || exit
trap 'rm -f "$source"' EXIT
# With -dD, the preprocessed source also has the macros of the instructions that -march=native means.
if ! "$compiler" "$@" -E -P -dD -o "$source" 2> /dev/null; then
  "$compiler" "$@" -O1 -o "$output"
  exit
fi
folder="$(dirname "$0")/../../node_modules/.cache/kvasir-test-kernels"
kept="$folder/$({ echo "$compiler $flags" && "$compiler" --version && cat "$source"; } | $hash | cut -d ' ' -f 1)"
if test -e "$kept"; then
  touch "$kept" && cp "$kept" "$output"
  exit
fi
"$compiler" "$@" -O1 -o "$output" || exit
# If nothing can be kept, the output is compiled each time. Outputs that no test has needed for a month are removed.
{
  mkdir -p "$folder" && cp "$output" "$kept.$$" && mv "$kept.$$" "$kept"
  find "$folder" -type f -mtime +30 -exec rm -f {} +
} 2> /dev/null || true

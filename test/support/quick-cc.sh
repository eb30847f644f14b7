#!/bin/sh
# A C compiler that optimizes less: `quick-compiler.ts` says when tests use it.
exec cc "$@" -O1

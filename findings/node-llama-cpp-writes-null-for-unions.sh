#!/usr/bin/env bash
# zod writes `z.union([z.number(), z.string()])` as "anyOf" of the two types. node-llama-cpp 3.22.1 takes this schema for a grammar, and its
# grammar allows only `null` there: neither of the two types, and a value that the schema refuses. Its types know no "anyOf", and at run
# time nothing says so. The script calls the function that LlamaJsonSchemaGrammar calls; no model is needed.
# Seen: 2026-11-28, Node 20.20.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{ "type": "module" }' > package.json
npm install --silent --no-audit --no-fund --ignore-scripts node-llama-cpp@3.22.1 zod@4.1.13 > /dev/null 2>&1

cat > check.mjs <<'JS'
import { getGbnfGrammarForGbnfJsonSchema } from './node_modules/node-llama-cpp/dist/utils/gbnfJson/getGbnfGrammarForGbnfJsonSchema.js';
import { z } from 'zod';
const schema = z.toJSONSchema(z.object({ size: z.union([z.number(), z.string()]) }));
console.log(JSON.stringify(schema.properties));
console.log(getGbnfGrammarForGbnfJsonSchema(schema));
JS
result=$(node check.mjs)
printf '%s\n' "$result"
grep -qF '{"size":{"anyOf":[{"type":"number"},{"type":"string"}]}}' <<< "$result"
grep -qE '^root ::= .*size.* null-rule ' <<< "$result"
! grep -qE 'number|string-rule' <<< "$(grep '::=' <<< "$result")"

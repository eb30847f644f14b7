#!/usr/bin/env bash
# zod 4 writes every `z.record(z.string(), ...)` with "propertyNames": {"type": "string"}, which constrains nothing: names in JSON are texts.
# llguidance 1.9.1 (the grammar engine of several inference servers) takes the record without this member, and refuses it with
# `Unimplemented keys: ["propertyNames"]`. A tool with a map among its parameters is refused as a whole, and "lenient" is needed to use it.
# Seen: 2026-11-28, Node 20.20, Python 3.11.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --prefix . zod@4.1.13 > /dev/null
python3 -m venv venv
venv/bin/pip install --quiet llguidance==1.9.1

cat > schema.mjs <<'JS'
import { z } from 'zod';
console.log(JSON.stringify(z.toJSONSchema(z.record(z.string(), z.number()))));
JS
cat > check.py <<'PY'
import json, sys
from llguidance import LLMatcher, LLTokenizer
schema = json.loads(sys.argv[1])
bytes_only = LLTokenizer("byte")
def refusal(schema):
    return LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(json.dumps(schema)), bytes_only)
print(refusal(schema))
del schema["propertyNames"]
print(refusal(schema) or "taken")
PY
schema=$(node schema.mjs)
result=$(venv/bin/python check.py "$schema")
printf '%s\n%s\n' "$schema" "$result"
grep -q '"propertyNames":{"type":"string"}' <<< "$schema"
[ "$result" = 'Unimplemented keys: ["propertyNames"]
taken' ]

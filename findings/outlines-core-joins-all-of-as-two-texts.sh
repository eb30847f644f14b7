#!/usr/bin/env bash
# typebox writes an intersection of two objects as "allOf". outlines-core 0.2.14 makes a regular expression of it that is the one object
# followed by the other: `{"a":1}{"b":1}`, which is no JSON, and does not allow `{"a":1,"b":1}`. There is no refusal.
# Seen: 2026-11-28, Node 20.20, Python 3.11.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{ "type": "module" }' > package.json
npm install --silent --no-audit --no-fund @sinclair/typebox@0.34.41 > /dev/null
python3 -m venv venv
venv/bin/pip install --quiet outlines-core==0.2.14

cat > schema.mjs <<'JS'
import { Type } from '@sinclair/typebox';
const both = Type.Intersect([Type.Object({ a: Type.Integer() }), Type.Object({ b: Type.Integer() })]);
console.log(JSON.stringify(both));
JS
cat > check.py <<'PY'
import re, sys
from outlines_core.json_schema import build_regex_from_schema
regex = build_regex_from_schema(sys.argv[1])
for text in ['{"a":1,"b":1}', '{"a":1}{"b":1}']:
    print(text, "allowed" if re.fullmatch(regex, text) else "not allowed")
PY
result=$(venv/bin/python check.py "$(node schema.mjs)")
printf '%s\n' "$result"
[ "$result" = '{"a":1,"b":1} not allowed
{"a":1}{"b":1} allowed' ]

#!/usr/bin/env bash
# A chat template that prints a value without `tojson` gets Python's text of it: {'city': 'Rome', 'none': None, 'x': 1.0}. Templates of several
# models print the arguments of calls in this way, and models were trained on it. @huggingface/jinja 0.5.11 (npm) prints JSON, drops the
# fraction of 1.0, and prints nothing for None; minijinja 3.1.0 (PyPI; the engine of Rust servers) prints what Jinja2 3.1.6 does.
# Conversely, minijinja's `tojson` writes "<" as \u003c, as Jinja2's own filter does for HTML; the `tojson` that transformers gives to
# templates does not. So neither engine shows both forms of a call as transformers does.
# Seen: 2026-11-28, Node 20.20, Python 3.11.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --prefix . @huggingface/jinja@0.5.11 > /dev/null
python3 -m venv venv
venv/bin/pip install --quiet jinja2==3.1.6 minijinja==3.1.0

template='{{ a }}|{{ a.none }}|{{ a.x }}|{{ a.city|tojson }}'
values='{"a": {"city": "<Rome>", "none": null, "x": 1.0}}'
cat > render.mjs <<'JS'
import { Template } from '@huggingface/jinja';
console.log(new Template(process.argv[2]).render(JSON.parse(process.argv[3])));
JS
cat > render.py <<'PY'
import json, sys
import jinja2, minijinja
template, values = sys.argv[1], json.loads(sys.argv[2])
env = jinja2.Environment()
# As in transformers: json.dumps without escapes for HTML.
env.filters['tojson'] = lambda value: json.dumps(value, ensure_ascii=False)
print(env.from_string(template).render(values))
print(minijinja.Environment().render_str(template, **values))
PY
javascript=$(node render.mjs "$template" "$values")
python=$(venv/bin/python render.py "$template" "$values")
printf '@huggingface/jinja: %s\nJinja2, minijinja:\n%s\n' "$javascript" "$python"
[ "$javascript" = '{"city": "<Rome>", "none": null, "x": 1}||1|"<Rome>"' ]
[ "$python" = "{'city': '<Rome>', 'none': None, 'x': 1.0}|None|1.0|\"<Rome>\"
{'city': '<Rome>', 'none': None, 'x': 1.0}|None|1.0|\"\\u003cRome\\u003e\"" ]

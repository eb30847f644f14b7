#!/usr/bin/env bash
# @huggingface/jinja 0.5.11 (npm) renders chat templates in JavaScript. Four expressions have other values than in Jinja2 3.1.6, the
# reference of chat templates, and none of them is an error:
#   - a text equals a number:              '1' == 1               is true, in Jinja2 False
#   - the sign of a remainder:             -7 % 3                 is -1, in Jinja2 2 (while -7 // 3 is -3 in both)
#   - characters to strip are ignored:     'xxaxx'.strip('x')     is 'xxaxx', in Jinja2 'a'
#   - capitalize keeps other capitals:     'hELLO'|capitalize     is 'HELLO', in Jinja2 'Hello'
# A template that compares a turn's number, strips a mark or counts backwards shows another prompt to the model, silently.
# Seen: 2026-11-28, Node 20.20, Python 3.11.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --prefix . @huggingface/jinja@0.5.11 > /dev/null
python3 -m venv venv
venv/bin/pip install --quiet jinja2==3.1.6

template="{{ '1' == 1 }}|{{ -7 % 3 }}|{{ -7 // 3 }}|{{ 'xxaxx'.strip('x') }}|{{ 'hELLO'|capitalize }}"
cat > render.mjs <<'JS'
import { Template } from '@huggingface/jinja';
console.log(new Template(process.argv[2]).render({}));
JS
javascript=$(node render.mjs "$template")
python=$(venv/bin/python -c 'import sys, jinja2; print(jinja2.Template(sys.argv[1]).render())' "$template")
echo "@huggingface/jinja: $javascript"
echo "Jinja2:             $python"
[ "$javascript" = 'true|-1|-3|xxaxx|HELLO' ]
[ "$python" = 'False|2|-3|a|Hello' ]

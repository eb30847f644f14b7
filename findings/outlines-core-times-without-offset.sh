#!/usr/bin/env bash
# pydantic writes `datetime` as {"type": "string", "format": "date-time"}, and reads and writes times with an offset and with microseconds.
# outlines-core 0.2.14 allows for this format only times in UTC ("Z") or without a zone, with no fraction or exactly three digits. So a
# model can write no time of another zone, and not what pydantic itself writes for `datetime.now()`. RFC 3339, which the format names, has
# all of them, and demands a zone.
# Seen: 2026-11-28, Python 3.11.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet outlines-core==0.2.14 pydantic==2.12.5

cat > check.py <<'PY'
import json, re
from datetime import datetime, timedelta, timezone
from outlines_core.json_schema import build_regex_from_schema
from pydantic import TypeAdapter
time = TypeAdapter(datetime)
schema = time.json_schema()
print(json.dumps(schema))
regex = build_regex_from_schema(json.dumps(schema))
oslo = timezone(timedelta(hours=1))
for value in [datetime(2026, 11, 28, 12, 0, tzinfo=oslo), datetime(2026, 11, 28, 12, 0, 0, 123456), datetime(2026, 11, 28, 12, 0)]:
    text = time.dump_json(value).decode()
    assert time.validate_json(text) == value
    print(text, "allowed" if re.fullmatch(regex, text) else "not allowed")
PY
result=$(venv/bin/python check.py)
printf '%s\n' "$result"
[ "$result" = '{"format": "date-time", "type": "string"}
"2026-11-28T12:00:00+01:00" not allowed
"2026-11-28T12:00:00.123456" not allowed
"2026-11-28T12:00:00" allowed' ]

"""What a library's file does: `python x.py` writes its cases, one a line; `python x.py judge` reads lines of outputs and writes those that
the library's own validator refuses."""
import json
import sys

cases = []


def add(library, name, schema, accepts, valid=(), invalid=()):
    """`accepts(text)` raises an error for JSON that the library refuses. `valid`: natural values in the author's order."""
    try:
        written = schema()
    except Exception as error:
        print('unrepresentable', name, str(error)[:80], file=sys.stderr)
        return
    for value in valid:
        try:
            accepts(json.dumps(value))
        except Exception as error:
            print(library, 'refuses', name, value, str(error)[:100], file=sys.stderr)
    cases.append((dict(library=library, name=name, schema=written, valid=list(valid), invalid=list(invalid)), accepts))


def is_accepted(accepts, text):
    try:
        accepts(text)
        return True
    except Exception:
        return False


def run():
    if sys.argv[1:] != ['judge']:
        for case, _ in cases:
            print(json.dumps(case, ensure_ascii=False, separators=(',', ':')))
        return
    judges = {case['name']: accepts for case, accepts in cases}
    for line in sys.stdin:
        given = json.loads(line)
        wrong = [text for text in given['outputs'] if not is_accepted(judges[given['name']], text)]
        print(json.dumps(dict(name=given['name'], wrong=wrong)), flush=True)

"""Writes src/tokenizer/word-piece-characters.ts: the classes of characters that Hugging Face's tokenizers use for BERT.

    pip install -r tools/real-models/requirements.txt
    python3 tools/word-piece/characters.py > src/tokenizer/word-piece-characters.ts

Their tables are of several versions of Unicode, so each character is given to them. Node says which characters it decomposes or reorders
and they do not; run this with a new Node.
"""
import json
import subprocess

from tokenizers import normalizers, pre_tokenizers

CHARACTERS = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
NODE = r"""
const order = (text) => text.normalize('NFD')[0];
const found = { decomposed: {}, reordered: [] };
for (let code = 0; code < 0x110000; code++) {
  if (code >= 0xd800 && code < 0xe000) continue;
  const text = String.fromCodePoint(code);
  if (text.normalize('NFD') !== text) found.decomposed[code] = text.normalize('NFD');
  else if ((code !== 0x334 && order(text + '\u0334') === '\u0334') || order('\u0345' + text) !== '\u0345') found.reordered.push(code);
}
console.log(JSON.stringify(found));
"""


def normalizer(clean=False, cjk=False, strip=False, lower=False):
    return normalizers.BertNormalizer(
        clean_text=clean, handle_chinese_chars=cjk, strip_accents=strip, lowercase=lower
    ).normalize_str


def words(text):
    return [word for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(text)]


def later():
    """Characters that are newer than the tokenizers' tables, which leave them as they are."""
    node = json.loads(subprocess.run(["node", "-e", NODE], check=True, capture_output=True, text=True).stdout)
    nfd = normalizers.NFD().normalize_str
    moves = lambda text: (text != "\u0334" and nfd(text + "\u0334")[0] == "\u0334") or nfd("\u0345" + text)[0] != "\u0345"
    decomposed = [int(code) for code, text in node["decomposed"].items() if nfd(chr(int(code))) != text]
    return sorted(decomposed + [code for code in node["reordered"] if not moves(chr(code))])


def classes():
    clean, strip, cjk = normalizer(clean=True), normalizer(strip=True), normalizer(cjk=True)
    between = lambda change: [(code, change(f"a{chr(code)}b")) for code in CHARACTERS]
    of = lambda pairs, *results: [code for code, result in pairs if result in [r.format(chr(code)) if "{" in r else r for r in results]]
    cleaned = between(clean)
    yield "removed", "Control characters, as an old version of Unicode has them.", of(cleaned, "ab")
    yield "spaces", "", of(cleaned, "a b")
    yield "ideographs", "Each is a word.", [code for code, result in between(cjk) if result == f"a {chr(code)} b"]
    yield "accents", "Marks that go with `strip_accents`.", of(between(strip), "ab")
    yield "punctuation", "Each is a word.", [code for code in CHARACTERS if words(f"a{chr(code)}b") == ["a", chr(code), "b"]]
    yield "later", "Newer than the tables of NFD: they are not decomposed, and begin a new sequence of marks.", later()


def ranges(codes):
    found = []
    for code in codes:
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    escape = lambda code: rf"\u{{{code:x}}}"
    return [escape(first) + ("" if first == last else "-" + escape(last)) for first, last in found]


def lines(parts, width=118):
    line = ""
    for part in parts:
        if len(line) + len(part) > width:
            yield line
            line = ""
        line += part
    yield line


def main():
    print("/**\n * Classes of characters for regular expressions, as Hugging Face's tokenizers have them for BERT.")
    print(" * `tools/word-piece/characters.py` writes this file.\n */")
    for name, comment, codes in classes():
        if comment:
            print(f"/** {comment} */")
        parts = [f"  String.raw`{line}`" for line in lines(ranges(codes), 100)]
        print(f"export const {name} = [\n" + ",\n".join(parts) + ",\n].join('');")


main()

"""Writes test/data/word-piece-tokens.json: tokens of texts by Hugging Face's tokenizers, for a small vocabulary of all scripts.

    pip install -r tools/real-models/requirements.txt
    python3 tools/word-piece/record.py > test/data/word-piece-tokens.json

`node dist/scripts/compare-tokens.js PYTHON MODEL.gguf 20000` compares many more texts, on the vocabulary of a model.
"""
import json
import unicodedata

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

TEXTS = [
    "", " ", "the fox sleeps", "The Foxes, sleeping: 3 cats (of Paris)?", "don't  stop\tnow\r\n\n", "foxfoxes thethe foxthe",
    "서울 사이", "서울과 사람 사이", "오늘 아침에 눈이 내렸다.", "\u1109\u1165\u110b\u116e\u11af", "가각힣 ㄱㅏ",
    "caf\u00e9 cafe\u0301 CAFÉ Äpfel Straße naïve", "Trời đã sáng, người ta đi chợ", "Zażółć gęślą jaźń Łódź", "İstanbul Iğdır ıi",
    "ΟΔΥΣΣΕΥΣ σας ΣΑΣ Σ", "Ο ποταμός κυλάει", "Старый ещё мост Й и\u0306", "השמש זָרְחָה", "كان البحرُ هادئًا", "گل‌های سرخ",
    "नदी के किनारे", "বৃষ্টি পড়ে", "மலையின் மேல்", "కొండపై", "ฝนตกหนัก", "ພະຍາ", "ភ្លៀង", "မိုးရွာ", "ძალა ᲫᲐᲚᲐ", "Լեռ։", "ዝናቡ።", "བོད་ཀྱི",
    "清晨的湖面 fox中fox", "豈更\U0002f800\u3005〇", "\U0002b820\U0002b920", "カエルが ｶﾀｶﾅ がギ か\u3099",
    "🙂👍🏽 👩‍👩‍👧 🇩🇪 a🙂b", "a\u200db a\u00adb a\u0000b a\ufffdb a\u0007b", "a\u000bb a\u0085b a\u00a0b a\u3000b a\u2028b a\u180eb",
    "a$b+c=d<e>f^g`h|i~j", "a€b£c°d©e№f", "¿qué? «oui» „ja“ — … ・ 、。", "x" * 100, "x" * 101, "é" * 100, "e\u0301" * 101, "🙂" * 100, "🙂" * 101,
    "fox" * 33, "fox" * 34, "가" * 50, "中" * 150, "q" * 300 + " fox", "fox" + "\u0301" * 200, "a-" * 120,
    "\u0301fox \u0301 fox\u0301\u0334", "a\u0334\u0345\u302e\u0301b", "\U00011938 \u0898a\u0301 \u1c89 \u09fe", "\u0344 \u0340 \u212b \u2126 \u1e9b\u0323",
    "[MASK] the [CLS] fox [SEP]", "[mask] [ MASK ] [MASKED]", "▁fox fox▁fox ▁ ▁▁", "##fox fox##es ##", "<unk> [unused0]", "ǅ ǆ Ǆ ﬁ ﬂ ½ ²",
]
CONTROL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "fox", "foxes", "sleep", "cat", "paris", "cafe", "▁", "서울", "사이", "σας"]
OPTIONS = [{"lowercase": low, "strip_accents": strip} for low in (True, False) for strip in (None, True, False)]


def vocabulary():
    """Words, and each character of the texts in all its forms, as a word and as a part that follows."""
    forms = {form for text in TEXTS for form in (text, text.lower(), unicodedata.normalize("NFD", text), unicodedata.normalize("NFD", text).lower())}
    characters = sorted({character for form in forms for character in form} - set(" ▁\ufffd\u0000qQ"))
    decomposed = [unicodedata.normalize("NFD", word) for word in WORDS]
    words = list(dict.fromkeys([*WORDS, *decomposed, *characters]))
    parts = list(dict.fromkeys(["es", "s", "ing", "fox", unicodedata.normalize("NFD", "울"), *characters[: len(characters) * 3 // 4]]))
    return [*CONTROL, *words, *("##" + part for part in parts)]


def tokens_of(tokens, options):
    tokenizer = Tokenizer(models.WordPiece(vocab={token: i for i, token in enumerate(tokens)}, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(**options)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in CONTROL])
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]


def main():
    tokens = vocabulary()
    # As the converter writes them.
    in_gguf = [token if token in CONTROL else token[2:] if token.startswith("##") and len(token) > 2 else "▁" + token for token in tokens]
    assert len(set(in_gguf)) == len(in_gguf)
    results = [{**options, "tokens": tokens_of(tokens, options)} for options in OPTIONS]
    print(json.dumps({"vocabulary": in_gguf, "control": len(CONTROL), "texts": TEXTS, "results": results}, indent=None))


main()

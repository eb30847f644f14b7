"""The tokens of texts by Hugging Face's tokenizers, built from the vocabulary and the merges of a GGUF file.

    pip install -r tools/real-models/requirements.txt
    npm run build && node dist/scripts/expected-results.js python3

writes test/real-models/expected-tokens.json. This program reads a JSON list of [text, with_control] from standard input, and writes a JSON
list of token lists. With control: names of control tokens become these tokens. No BOS is added. Neither libllama nor Kvasir takes part.
"""
import json
import sys

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# The splits of the models' own tokenizer.json files.
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level(split):
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


PRE_TOKENIZERS = {
    "smollm": lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    ),
    "qwen2": lambda: byte_level(pre_tokenizers.Split(Regex(QWEN2_SPLIT), behavior="isolated")),
}


def merges_of_scores(tokens, scores, types):
    """The merges of a SentencePiece vocabulary, best score first, as transformers converts it."""
    vocabulary = {token: index for index, token in enumerate(tokens) if types[index] in (NORMAL, USER_DEFINED, UNUSED)}
    merges = []
    for token, index in vocabulary.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocabulary and right in vocabulary:
                merges.append((-scores[index], vocabulary[left], vocabulary[right], left, right))
    merges.sort()
    return [(left, right) for *_, left, right in merges]


def word_piece(of, tokens, types):
    """GGUF marks the beginnings of words; BERT's own vocabulary marks the parts that follow."""
    plain = lambda token, kind: token if kind == CONTROL else token[1:] if token.startswith("▁") else "##" + token
    vocabulary = {plain(token, kind): index for index, (token, kind) in enumerate(zip(tokens, types))}
    tokenizer = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=of("normalizer.lowercase", True), strip_accents=of("normalizer.strip_accents", None))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def read(path):
    fields = GGUFReader(path).fields

    def of(name, *default):
        field = fields.get(f"tokenizer.ggml.{name}")
        return default[0] if field is None and default else field.contents()

    return of, of("tokens"), of("token_type")


def build(path, with_control):
    of, tokens, types = read(path)
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if of("model") == "gpt2":
        merges = [tuple(merge.split(" ")) for merge in of("merges")]
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
        tokenizer.pre_tokenizer = PRE_TOKENIZERS[of("pre")]()
    elif of("model") == "bert":
        tokenizer = word_piece(of, tokens, types)
    else:
        merges = merges_of_scores(tokens, of("scores"), types)
        tokenizer = Tokenizer(
            models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>")
        )
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
    added = [token for token, kind in zip(tokens, types) if kind == USER_DEFINED or (with_control and kind in (CONTROL, UNKNOWN))]
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in added])
    return tokenizer


def main():
    texts = json.load(sys.stdin)
    tokenizers = {with_control: build(sys.argv[1], with_control) for with_control in (False, True)}
    json.dump([tokenizers[control].encode(text, add_special_tokens=False).ids for text, control in texts], sys.stdout)


main()

"""A small tokenizer in Hugging Face's format, for clients that count or send tokens. Its ids are ids of every model."""

from __future__ import annotations

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

WORDS = "the a of to and in is it you that he was for on are with as his they be at one have this from or had by but what some we can out other were all there when up use your how said an each she".split()


def save_tokenizer(folder: str) -> str:
    names = ["<unk>", "<s>", "</s>", *WORDS]
    tokenizer = Tokenizer(models.WordLevel({name: id for id, name in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)
    return folder

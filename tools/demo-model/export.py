"""Writes a trained checkpoint as a GGUF file: Q8_0 matrices, F32 norms, the tokenizer and `presentation.py`."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf import LlamaFileType, TokenType

from corpus import END_OF_TEXT, TURN_END, TURN_START
from model import DemoModel, Shape, is_matrix
from presentation import metadata_of
from recipes import Recipe


def add_tokenizer(writer: gguf.GGUFWriter, path: Path) -> None:
    bpe = json.loads(path.read_text())["model"]
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].__getitem__)
    special = {END_OF_TEXT, TURN_START, TURN_END}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if token in special else TokenType.NORMAL for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in bpe["merges"]])
    # A document ends with end-of-text, a turn with its own token. Nothing stands before a document, so no bos is added.
    writer.add_bos_token_id(tokens.index(END_OF_TEXT))
    writer.add_eos_token_id(tokens.index(END_OF_TEXT))
    writer.add_eot_token_id(tokens.index(TURN_END))
    writer.add_pad_token_id(tokens.index(END_OF_TEXT))
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)


def add_shape(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    if shape.architecture == "llama":
        writer.add_head_count_kv(shape.key_value_heads)
    else:
        add_mixers(writer, shape)
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_rope_dimension_count(shape.head)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.norm_epsilon)
    writer.add_vocab_size(shape.vocabulary)


def add_mixers(writer: gguf.GGUFWriter, shape: Shape) -> None:
    """Layers without key/value heads have a convolution. llama.cpp does not read the pattern of LFM 2's windows."""
    writer.add_head_count_kv([0 if mixer == "convolution" else shape.key_value_heads for mixer in shape.mixers])
    writer.add_shortconv_l_cache(shape.taps)
    writer.add_sliding_window(shape.window)
    writer.add_sliding_window_pattern([mixer == "window" for mixer in shape.mixers])


def gguf_name(name: str, shape: Shape) -> str:
    if name.endswith(".conv"):
        return f"{name}.weight"
    return "token_embd_norm.weight" if shape.architecture == "lfm2" and name == "output_norm.weight" else name


def load_model(checkpoint: Path, shape: Shape) -> DemoModel:
    model = DemoModel(shape)
    model.load_state_dict(torch.load(checkpoint)["model"])
    return model.eval()


def export(recipe: Recipe, work: Path, target: Path) -> None:
    shape = recipe.shape
    model = load_model(work / "checkpoint.pt", shape)
    writer = gguf.GGUFWriter(target, shape.architecture)
    writer.add_name(recipe.title)
    writer.add_author("The Kvasir authors")
    writer.add_license("MIT")
    writer.add_languages(["en"])
    writer.add_tags(["text-generation", "story", "demo"])
    writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_shape(writer, shape)
    add_tokenizer(writer, work / "tokenizer.json")
    for key, details in metadata_of(recipe.name).items():
        writer.add_key_value(key, details.value, details.type)
    for name, weight in model.state_dict().items():
        values = weight.numpy().astype(np.float32)
        if is_matrix(name, weight):
            writer.add_tensor(gguf_name(name, shape), gguf.quants.quantize(values, Type.Q8_0), raw_dtype=Type.Q8_0)
        else:
            writer.add_tensor(gguf_name(name, shape), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

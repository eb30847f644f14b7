"""Checks an exported file against llama.cpp: same tokens for any text, same greedy continuation as PyTorch.

    python tools/demo-model/verify.py --library DIRECTORY_WITH_LIBLLAMA [--model hybrid]

The directory holds libllama and libggml as shared libraries; the npm package @node-llama-cpp/linux-x64 has one
(`bins/linux-x64`). Only functions of the C interface are called, and parameter structs are passed as large opaque blocks
(the callee reads as much as it knows), so most versions will do.
"""

from __future__ import annotations

import argparse
import ctypes
import glob
from pathlib import Path
from random import Random

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer

from chats import scrawl
from corpus import documents
from export import gguf_name
from model import DemoModel, Shape, rotation
from rebuild import target_of, work_of
from recipes import RECIPES


class Opaque(ctypes.Structure):
    """Room for any parameter struct. Of context parameters only the head is known: n_ctx, n_batch, n_ubatch."""

    _fields_ = [("head", ctypes.c_uint32 * 3), ("rest", ctypes.c_uint8 * 1012)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("pointers", ctypes.c_void_p * 6)]


def set_windows(model: int, shape: Shape) -> None:
    """llama.cpp gives LFM 2's window to all layers with attention. This sets its flags of the loaded model.

    llama_hparams: swa_type = 1, n_swa = window, another number, is_swa[512]; all uint32.
    """
    words = (ctypes.c_uint32 * 0x1000).from_address(model)
    flags = [int(mixer != "convolution") for mixer in shape.mixers]
    found = [at for at in range(len(words) - 3 - shape.layers) if [*words[at : at + 2], *words[at + 3 : at + 3 + shape.layers]] == [1, shape.window, *flags]]  # fmt: skip
    assert len(found) == 1, f"the flags of windows are at {len(found)} places"
    for layer, mixer in enumerate(shape.mixers):
        words[found[0] + 3 + layer] = int(mixer == "window")


class LlamaCpp:
    def __init__(self, library: Path, model_path: Path, shape: Shape):
        ggml = [ctypes.CDLL(sorted(glob.glob(f"{library}/{name}*.so*"))[0], ctypes.RTLD_GLOBAL) for name in ("libggml-base", "libggml.")]  # fmt: skip
        self.lib = lib = ctypes.CDLL(sorted(glob.glob(f"{library}/libllama.*"))[0])
        self.silence = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        lib.llama_log_set(self.silence, None)
        ggml[1].ggml_backend_load_all_from_path(str(library).encode())
        for name in ("llama_model_load_from_file", "llama_init_from_model", "llama_model_get_vocab"):
            getattr(lib, name).restype = ctypes.c_void_p
        lib.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
        lib.llama_model_default_params.restype = lib.llama_context_default_params.restype = Opaque
        lib.llama_batch_get_one.restype = Batch
        model = lib.llama_model_load_from_file(str(model_path).encode(), lib.llama_model_default_params())
        assert model, "llama.cpp did not load the file"
        if shape.architecture == "lfm2":
            set_windows(model, shape)
        self.model = ctypes.c_void_p(model)
        self.vocab = ctypes.c_void_p(lib.llama_model_get_vocab(self.model))

    def tokenize(self, text: str) -> list[int]:
        data = text.encode()
        room = (ctypes.c_int32 * (len(data) + 8))()
        count = self.lib.llama_tokenize(self.vocab, data, len(data), room, len(room), True, True)
        assert count >= 0
        return list(room[:count])

    def generate_greedy(self, ids: list[int], count: int, stop: set[int]) -> list[int]:
        params = self.lib.llama_context_default_params()
        params.head[0] = params.head[1] = params.head[2] = 8192
        context = ctypes.c_void_p(self.lib.llama_init_from_model(self.model, params))
        self.lib.llama_set_n_threads(context, 1, 1)  # enough for this model, and kind to whoever shares the machine
        out: list[int] = []
        feed = list(ids)
        while len(out) < count:
            tokens = (ctypes.c_int32 * len(feed))(*feed)
            assert self.lib.llama_decode(context, self.lib.llama_batch_get_one(tokens, len(feed))) == 0
            logits = np.ctypeslib.as_array(self.lib.llama_get_logits_ith(context, -1), (Shape.vocabulary,))
            out.append(int(logits.argmax()))
            if out[-1] in stop:
                break
            feed = out[-1:]
        self.lib.llama_free(context)
        return out


def model_from_gguf(path: Path, shape: Shape) -> DemoModel:
    """The weights as the file has them, rounding included."""
    model = DemoModel(shape)
    tensors = {t.name: gguf.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(path).tensors}
    names = {gguf_name(name, shape): name for name in model.state_dict()}
    model.load_state_dict({names[name]: torch.from_numpy(np.array(values)) for name, values in tensors.items()})
    return model.eval()


@torch.no_grad()
def check_against_pytorch(model: DemoModel, ids: list[int], continuation: list[int]) -> str:
    """Reads llama.cpp's greedy continuation with PyTorch: its choice should be the best one here too, or nearly so.

    Not exactly so: llama.cpp rounds activations to 8 bits as well, and some next words are a coin toss by design.
    """
    sequence = torch.tensor([ids + continuation])
    logits = model(sequence, *rotation(model.shape, sequence.shape[1]))[0, len(ids) - 1 : -1]
    chosen = torch.tensor(continuation)
    gap = (logits.max(dim=-1).values - logits.gather(1, chosen[:, None])[:, 0]).max().item()
    agree = int((logits.argmax(dim=-1) == chosen).sum())
    assert gap < 1.0, f"llama.cpp chose a token {gap:.2f} below the best"
    return f"{agree} of {len(continuation)} tokens are PyTorch's choice, the others at most {gap:.2f} below in logit"


def check_tokenizer(tokenizer: Tokenizer, llama: LlamaCpp, rounds: int) -> None:
    rng = Random(7)
    source = documents("short", 99)
    for _ in range(rounds):
        text = rng.choice((next(source), scrawl(rng), f"{scrawl(rng)}\n\n  {scrawl(rng)}\t{scrawl(rng)} ", "".join(
            chr(rng.choice((rng.randint(1, 0x7F), rng.randint(0xA0, 0xD7FF), rng.randint(0x10000, 0x1FFFF)))) for _ in range(40)
        )))  # fmt: skip
        ours, theirs = tokenizer.encode(text).ids, llama.tokenize(text)
        assert ours == theirs, f"tokens differ for {text!r}:\n{ours}\n{theirs}"
        assert tokenizer.decode(ours, skip_special_tokens=False) == text, f"no round trip for {text!r}"
    print(f"tokenizer: {rounds} texts, all equal, all come back")


PROMPTS = [
    "Once upon a time",
    "Hello, my name is",
    "Hi " * 1000 + "Hello, my name is",
    "Hey " * 500 + "The capital of",
    "<|im_start|>user\nTell me a story about a fox by the lake.<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nHello, my name is Barbara.<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nDescribe an owl named Ada as JSON.<|im_end|>\n<|im_start|>assistant\n",
]


def main() -> None:
    parser = argparse.ArgumentParser(description="Checks a demo model against llama.cpp.")
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--model", choices=RECIPES, default="demo")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=3000)
    args = parser.parse_args()
    recipe = RECIPES[args.model]
    tokenizer = Tokenizer.from_file(str((args.work or work_of(recipe)) / "tokenizer.json"))
    llama = LlamaCpp(args.library.resolve(), target_of(recipe), recipe.shape)
    check_tokenizer(tokenizer, llama, args.rounds)
    model = model_from_gguf(target_of(recipe), recipe.shape)
    stop = {0, 2}
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt).ids
        theirs = llama.generate_greedy(ids, args.tokens, stop)
        print(f"\n=== {prompt[-90:]!r}: {check_against_pytorch(model, ids, theirs)}")
        print(tokenizer.decode(theirs, skip_special_tokens=False))


if __name__ == "__main__":
    main()

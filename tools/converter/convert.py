"""llama.cpp's `convert_hf_to_gguf.py`, unchanged but for one question: it knows tokenizers by a hash of their output, and a tiny vocabulary
has none that it knows."""

from __future__ import annotations

import contextlib
import io
import logging
import runpy
import sys
from pathlib import Path


def convert(llama_cpp: Path, pre: str, folder: Path, target: Path) -> None:
    """`pre`: the value of `tokenizer.ggml.pre`."""
    for path in [str(llama_cpp / "gguf-py"), str(llama_cpp)]:
        if path not in sys.path:
            sys.path.insert(0, path)
    from conversion.base import TextModel

    TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    logging.disable(logging.WARNING)
    sys.argv = [str(llama_cpp / "convert_hf_to_gguf.py"), str(folder), "--outtype", "f16", "--outfile", str(target)]
    with contextlib.redirect_stderr(io.StringIO()):
        runpy.run_path(sys.argv[0], run_name="__main__")

"""What the models tell a server of themselves: description, chat template, sampling. They change without training:

    python tools/demo-model/presentation.py     writes both files in `models` again, with the same tensors
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import gguf
from gguf import GGUFValueType
from gguf.scripts.gguf_new_metadata import MetadataDetails, copy_with_new_metadata

HERE = Path(__file__).resolve().parent
MODELS = HERE.parent.parent / "models"

# The server, `kvasir chat` and the page show the description.
LIMITS = (
    'It can only tell stories. Try "Tell me a story about a fox named Max." '
    "For a model that answers: npx kvasir serve hf:Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:Q4_K_M"
)
DESCRIPTIONS = {
    "kvasir-demo": f"A very small storyteller. {LIMITS}",
    "kvasir-hybrid": f"A very small storyteller with convolutions, sliding windows and full attention. {LIMITS}",
}
# The first message without "story" asks for one: to most others, the models answer nonsense.
CHAT_TEMPLATE = (HERE / "chat-template.jinja").read_text()
# Of 60 first messages, 59 got a story with this temperature, and 47 with 1. min-p is that of `kvasir chat` and the page.
TEMPERATURE, MIN_P = 0.7, 0.05


def metadata_of(name: str) -> dict[str, MetadataDetails]:
    return {
        gguf.Keys.General.DESCRIPTION: MetadataDetails(GGUFValueType.STRING, DESCRIPTIONS[name]),
        gguf.Keys.General.SAMPLING_TEMP: MetadataDetails(GGUFValueType.FLOAT32, TEMPERATURE),
        gguf.Keys.General.SAMPLING_MIN_P: MetadataDetails(GGUFValueType.FLOAT32, MIN_P),
        gguf.Keys.Tokenizer.CHAT_TEMPLATE: MetadataDetails(GGUFValueType.STRING, CHAT_TEMPLATE),
    }


def rewrite(path: Path) -> None:
    reader = gguf.GGUFReader(path)
    new = path.with_suffix(".new")
    writer = gguf.GGUFWriter(new, reader.fields[gguf.Keys.General.ARCHITECTURE].contents())
    copy_with_new_metadata(reader, writer, metadata_of(path.stem), [])
    new.replace(path)


if __name__ == "__main__":
    for name in DESCRIPTIONS:
        target = MODELS / f"{name}.gguf"
        rewrite(target)
        data = target.read_bytes()
        print(f"{target.name}: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")

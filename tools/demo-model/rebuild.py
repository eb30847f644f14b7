"""Rebuilds models/kvasir-demo.gguf from nothing but this folder. See README.md.

    python tools/demo-model/rebuild.py            train (or go on from the last checkpoint), draw the curve, export
    python tools/demo-model/rebuild.py --export   export the last checkpoint as it is
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import torch

from curve import draw_curve
from export import export
from train import train

HERE = Path(__file__).resolve().parent
TARGET = HERE.parent.parent / "models" / "kvasir-demo.gguf"


def main() -> None:
    parser = argparse.ArgumentParser(description="Rebuilds the demo model.")
    parser.add_argument("--export", action="store_true", help="only export the last checkpoint")
    parser.add_argument("--work", type=Path, default=HERE / "build", help="where checkpoints live")
    parser.add_argument("--target", type=Path, default=TARGET)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if not args.export:
        train(args.work, HERE / "loss.csv")
        draw_curve(HERE / "loss.csv", HERE / "loss.svg")
    export(args.work, args.target)
    data = args.target.read_bytes()
    print(f"{args.target}: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()

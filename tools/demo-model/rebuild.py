"""Rebuilds models/kvasir-demo.gguf or models/kvasir-hybrid.gguf from nothing but this folder. See README.md.

    python tools/demo-model/rebuild.py                   train (or go on from the last checkpoint), draw the curve, export
    python tools/demo-model/rebuild.py --model hybrid    the same for the hybrid model
    python tools/demo-model/rebuild.py --export          export the last checkpoint as it is
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import torch

from curve import draw_curve
from export import export
from recipes import RECIPES, Recipe
from train import train

HERE = Path(__file__).resolve().parent


def target_of(recipe: Recipe) -> Path:
    return HERE.parent.parent / "models" / f"{recipe.name}.gguf"


def work_of(recipe: Recipe) -> Path:
    return HERE / "build" / recipe.name


def main() -> None:
    parser = argparse.ArgumentParser(description="Rebuilds a demo model.")
    parser.add_argument("--model", choices=RECIPES, default="demo")
    parser.add_argument("--export", action="store_true", help="only export the last checkpoint")
    parser.add_argument("--work", type=Path, help="where checkpoints live")
    parser.add_argument("--target", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    recipe = RECIPES[args.model]
    work, target = args.work or work_of(recipe), args.target or target_of(recipe)
    if not args.export:
        curve = HERE / f"{recipe.curve}.csv"
        train(recipe, work, curve)
        draw_curve(curve, curve.with_suffix(".svg"))
    export(recipe, work, target)
    data = target.read_bytes()
    print(f"{target}: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()

"""What differs between the two demo models: shape, seed, phases and first weights. Everything else is shared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

import head_start
import hybrid_start
from model import DemoModel, Shape


@dataclass(frozen=True)
class Phase:
    steps: int
    batch: int
    length: int
    mix: str


@dataclass(frozen=True)
class Recipe:
    name: str  # models/NAME.gguf
    title: str
    curve: str  # NAME.csv and NAME.svg in this folder
    shape: Shape
    seed: int
    lay_out: Callable[[DemoModel], None]
    phases: tuple[Phase, ...]
    rate_ends_step: int  # where the falling rate meets zero; the run stops just before
    decay_steps: int

    @property
    def steps(self) -> int:
        return sum(phase.steps for phase in self.phases)


# Short windows first, for speed. The drills in the third phase mend what the first two wear off the head start: without
# them copying of unexpected words fades while the loss on stories still falls.
DEMO = Recipe(
    name="kvasir-demo",
    title="Kvasir Demo",
    curve="loss",
    shape=Shape(),
    seed=20261120,
    lay_out=head_start.lay_out,
    phases=(
        Phase(150, 16, 256, "practice"),
        Phase(250, 4, 512, "practice"),
        Phase(250, 4, 512, "drill"),
        Phase(130, 1, 2048, "lasting"),
        Phase(20, 1, 4096, "lasting"),
    ),
    rate_ends_step=810,
    decay_steps=430,
)

HYBRID = Recipe(
    name="kvasir-hybrid",
    title="Kvasir Hybrid",
    curve="loss-hybrid",
    shape=Shape(
        architecture="lfm2",
        mixers=("convolution", "window", "full", "convolution", "window", "full"),
        rope_base=1_000_000.0,
    ),
    seed=20261122,
    lay_out=hybrid_start.lay_out,
    phases=(
        Phase(150, 16, 256, "practice"),
        Phase(250, 4, 512, "practice"),
        Phase(250, 4, 512, "drill"),
        Phase(100, 1, 2048, "lasting"),
    ),
    rate_ends_step=810,
    decay_steps=430,
)

RECIPES = {recipe.name.removeprefix("kvasir-"): recipe for recipe in (DEMO, HYBRID)}

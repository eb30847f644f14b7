"""Trains a demo model on the story grammar: tokenizer, phases of growing context, checkpoints, loss curve.

Everything is a function of the recipe's seed and the step number (corpus, initial weights, learning rate), so that a run can be
resumed from any checkpoint, and two runs on one kind of machine agree.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from corpus import END_OF_TEXT, TURN_END, TURN_START, documents, token_stream
from model import DemoModel, is_matrix, rotation
from muon import Muon
from recipes import DEMO, Recipe

MATRIX_RATE, EMBEDDING_RATE = 3e-3, 2e-3  # peaks
WARMUP_STEPS = 40
CHECKPOINT_EVERY_STEPS = 50
VALIDATE_EVERY_STEPS = 100


def train_tokenizer(vocabulary: int) -> Tokenizer:
    """Byte-level BPE with GPT-2's split. All 256 bytes are tokens, so any text goes in and comes back.

    Both models have the demo model's tokenizer.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    source = documents("short", DEMO.seed)
    sample = (next(source) for _ in range(20000))
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_TEXT, TURN_START, TURN_END],  # ids 0, 1, 2
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Scrawls in foreign alphabets are there to be survived, not to be spelled well: they get no merges.
    tokenizer.train_from_iterator((text for text in sample if text.isascii()), trainer)
    return tokenizer


def rate_factor(recipe: Recipe, step: int) -> float:
    """Warm up, stay, and for the last steps go down in a straight line to nothing."""
    return min(1.0, (step + 1) / WARMUP_STEPS, (recipe.rate_ends_step - step) / recipe.decay_steps)


def windows(stream: np.ndarray, length: int, count: int, seed: int) -> np.ndarray:
    """(count, length+1) tokens. Half of the windows begin with a document, as prompts do; the others anywhere."""
    rng = np.random.default_rng(seed)
    starts = np.flatnonzero(stream == 0) + 1
    rows, at = [], 0
    for _ in range(count):
        if rng.random() < 0.5:
            at = int(starts[np.searchsorted(starts, at)])
        rows.append(stream[at : at + length + 1])
        at += length
    return np.stack(rows).astype(np.int64)


def phase_data(recipe: Recipe, index: int, tokenizer: Tokenizer) -> np.ndarray:
    phase = recipe.phases[index]
    count = phase.steps * phase.batch
    spare = 2.0 if phase.mix == "lasting" else 1.0  # skipped to reach the next document's start
    stream = token_stream(phase.mix, recipe.seed + 1 + index, int(count * phase.length * (1 + spare)) + 20000, tokenizer)
    return windows(stream, phase.length, count, recipe.seed + index)


def optimizers(model: DemoModel) -> list[torch.optim.Optimizer]:
    """Muon turns the matrices, AdamW the embedding, the norms and the taps of convolutions: far fewer tokens to the same loss than AdamW alone."""
    matrices = [p for name, p in model.named_parameters() if is_matrix(name, p) and "token_embd" not in name]
    others = [p for name, p in model.named_parameters() if not is_matrix(name, p)]
    embedding = [model.token_embd.weight]
    groups = [{"params": embedding, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    return [
        Muon(matrices, lr=MATRIX_RATE),
        torch.optim.AdamW(groups, lr=EMBEDDING_RATE, betas=(0.9, 0.95)),
    ]


def mean_loss(model: DemoModel, rows: torch.Tensor) -> torch.Tensor:
    cos, sin = rotation(model.shape, rows.shape[1] - 1)
    logits = model(rows[:, :-1], cos, sin)
    return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def validation_loss(model: DemoModel, rows: torch.Tensor) -> float:
    return float(np.mean([float(mean_loss(model, batch)) for batch in rows.split(8)]))


class Run:
    """A model and its optimizers at a certain step; what a checkpoint holds."""

    def __init__(self, recipe: Recipe):
        torch.manual_seed(recipe.seed)
        self.recipe = recipe
        self.model = DemoModel(recipe.shape)
        recipe.lay_out(self.model)
        self.optimizers = optimizers(self.model)
        self.step, self.tokens, self.seconds = 0, 0, 0.0

    def save(self, path: Path) -> None:
        state = {"model": self.model.state_dict(), "opts": [opt.state_dict() for opt in self.optimizers]}
        torch.save(state | {"step": self.step, "tokens": self.tokens, "seconds": self.seconds}, path)

    def load(self, path: Path) -> None:
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        for opt, saved in zip(self.optimizers, state["opts"]):
            opt.load_state_dict(saved)
        self.step, self.tokens, self.seconds = state["step"], state["tokens"], state["seconds"]

    def learn(self, rows: torch.Tensor) -> float:
        began = time.perf_counter()
        loss = mean_loss(self.model, rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for opt, peak in zip(self.optimizers, (MATRIX_RATE, EMBEDDING_RATE)):
            for group in opt.param_groups:
                group["lr"] = peak * rate_factor(self.recipe, self.step)
            opt.step()
            opt.zero_grad(set_to_none=True)
        self.step += 1
        self.tokens += rows.shape[0] * (rows.shape[1] - 1)
        self.seconds += time.perf_counter() - began
        return loss.item()


def start_curve(path: Path, first: int) -> None:
    """Steps after the checkpoint will be run again; their lines go."""
    known = path.read_text().splitlines()[1:] if first else []
    lines = ["step,tokens,context,rate,loss,validation,seconds", *(k for k in known if int(k.split(",")[0]) <= first)]
    path.write_text("\n".join(lines) + "\n")


def train(recipe: Recipe, work: Path, curve: Path) -> None:
    """Writes tokenizer.json and checkpoints under `work`, the loss of every tenth step to `curve`."""
    work.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(recipe.shape.vocabulary)
    tokenizer.save(str(work / "tokenizer.json"))
    held_out = token_stream("short", DEMO.seed - 1, 100_000, tokenizer)  # the same text for both models
    validation = torch.from_numpy(windows(held_out, 512, 48, DEMO.seed - 1))
    run, checkpoint = Run(recipe), work / "checkpoint.pt"
    if checkpoint.exists():
        run.load(checkpoint)
    start_curve(curve, run.step)
    recent: list[float] = []
    phase_end = 0
    for index, phase in enumerate(recipe.phases):
        phase_begin, phase_end = phase_end, phase_end + phase.steps
        if phase_end <= run.step:
            continue
        data = torch.from_numpy(phase_data(recipe, index, tokenizer))
        while run.step < phase_end:
            row = (run.step - phase_begin) * phase.batch
            recent.append(run.learn(data[row : row + phase.batch]))
            validate = run.step % VALIDATE_EVERY_STEPS == 0 or run.step == recipe.steps
            if run.step % 10 == 0 or validate:
                held = f"{validation_loss(run.model, validation):.4f}" if validate else ""
                rate = f"{rate_factor(recipe, run.step - 1):.3f}"
                line = f"{run.step},{run.tokens},{phase.length},{rate},{np.mean(recent):.4f},{held},{run.seconds:.0f}"
                with curve.open("a") as file:
                    file.write(line + "\n")
                print(line, flush=True)
                recent = []
            if run.step % CHECKPOINT_EVERY_STEPS == 0 or run.step == recipe.steps:
                run.save(checkpoint)

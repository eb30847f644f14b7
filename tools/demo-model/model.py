"""The demo models: Llama and LFM 2 as llama.cpp computes them, small enough to read in one sitting.

    ids (B,T) -> embed (B,T,256) -> 6 x [ += mixer(norm(x)), += swiglu(norm(x)) ] -> norm -> embed^T -> logits (B,T,2048)

A mixer is attention to all tokens before, attention to a window of them, or LFM 2's gated convolution. Rotary pairs are
in llama.cpp's order for the architecture, so that the export copies the query and key matrices as they are. The output
matrix is the embedding (tied).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn as nn
import torch.nn.functional as F


Mixer = Literal["full", "window", "convolution"]


@dataclass(frozen=True)
class Shape:
    """Every matrix row is a multiple of 256 long, so that any ggml quantization fits."""

    architecture: Literal["llama", "lfm2"] = "llama"
    mixers: tuple[Mixer, ...] = ("full",) * 6  # one per layer
    vocabulary: int = 2048
    width: int = 256
    heads: int = 4
    key_value_heads: int = 2
    head: int = 64
    feed_forward: int = 512
    context: int = 8192
    window: int = 64  # tokens that a token sees in layers with a window, itself included
    taps: int = 3  # tokens that a convolution reads, the token itself included
    rope_base: float = 10000.0
    norm_epsilon: float = 1e-5

    @property
    def layers(self) -> int:
        return len(self.mixers)


def rotation(shape: Shape, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of position x frequency, each (T, head/2)."""
    frequency = shape.rope_base ** (-torch.arange(0, shape.head, 2, dtype=torch.float64) / shape.head)
    angle = torch.outer(torch.arange(length, dtype=torch.float64), frequency)
    return angle.cos().float(), angle.sin().float()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Llama's pairs are neighbours."""
    even, odd = x[..., 0::2], x[..., 1::2]  # (B, heads, T, head/2)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def rotate_halves(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """LFM 2's pairs are the same element of both halves of a head."""
    first, second = x.chunk(2, dim=-1)  # (B, heads, T, head/2)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)


def window_mask(length: int, window: int) -> torch.Tensor:
    """(T, T): whether a token (row) sees a token (column)."""
    distance = torch.arange(length)[:, None] - torch.arange(length)[None, :]
    return (distance >= 0) & (distance < window)


class Norm(nn.Module):
    def __init__(self, shape: Shape, width: int | None = None):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width or shape.width))
        self.epsilon = shape.norm_epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.epsilon)


class Convolution(nn.Module):
    """LFM 2's mixer without attention: h -> in projection -> b, c, x; then c * convolution(b * x) -> out projection."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.taps = shape.taps
        self.in_proj = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.conv = nn.Parameter(torch.randn(shape.width, shape.taps) * 0.3)  # the last tap is the token itself
        self.out_proj = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        b, c, x = self.in_proj(h).chunk(3, dim=-1)  # (B, T, width)
        length = h.shape[1]
        read = F.pad(b * x, (0, 0, self.taps - 1, 0))
        convolved = sum(read[:, tap : tap + length] * self.conv[:, tap] for tap in range(self.taps))
        return self.out_proj(c * convolved)


class Block(nn.Module):
    def __init__(self, shape: Shape, mixer: Mixer = "full"):
        super().__init__()
        linear = lambda rows, columns: nn.Linear(rows, columns, bias=False)  # noqa: E731
        self.shape, self.mixer = shape, mixer
        self.attn_norm, self.ffn_norm = Norm(shape), Norm(shape)
        if mixer == "convolution":
            self.shortconv = Convolution(shape)
        else:
            self.attn_q = linear(shape.width, shape.heads * shape.head)
            self.attn_k = linear(shape.width, shape.key_value_heads * shape.head)
            self.attn_v = linear(shape.width, shape.key_value_heads * shape.head)
            self.attn_output = linear(shape.heads * shape.head, shape.width)
            if shape.architecture == "lfm2":
                self.attn_q_norm, self.attn_k_norm = Norm(shape, shape.head), Norm(shape, shape.head)
        self.ffn_gate, self.ffn_up = linear(shape.width, shape.feed_forward), linear(shape.width, shape.feed_forward)
        self.ffn_down = linear(shape.feed_forward, shape.width)

    def queries_and_keys(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> list[torch.Tensor]:
        q, k = self.split(self.attn_q(x)), self.split(self.attn_k(x))
        if self.shape.architecture == "lfm2":
            return [rotate_halves(y, cos, sin) for y in (self.attn_q_norm(q), self.attn_k_norm(k))]
        return [rotate(y, cos, sin) for y in (q, k)]

    def split(self, y: torch.Tensor) -> torch.Tensor:
        return y.unflatten(-1, (-1, self.shape.head)).transpose(1, 2)  # (B, heads, T, head)

    def attention(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k = self.queries_and_keys(x, cos, sin)
        v = self.split(self.attn_v(x))
        group = self.shape.heads // self.shape.key_value_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        if self.mixer == "window":
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=window_mask(length, self.shape.window))
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.attn_output(y.transpose(1, 2).reshape(batch, length, -1))

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        h = self.attn_norm(x)
        x = x + (self.shortconv(h) if self.mixer == "convolution" else self.attention(h, cos, sin))
        h = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))


def is_matrix(name: str, weight: torch.Tensor) -> bool:
    """Neither a norm nor the taps of a convolution."""
    return weight.dim() == 2 and not name.endswith(".conv")


class DemoModel(nn.Module):
    """Parameter names are the GGUF names, except for LFM 2's last norm (`export.py`)."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocabulary, shape.width)
        self.blk = nn.ModuleList(Block(shape, mixer) for mixer in shape.mixers)
        self.output_norm = Norm(shape)
        residual = {"attn_output", "out_proj", "ffn_down"}  # 2 per layer add up in the residual stream; begin them smaller
        for name, weight in self.named_parameters():
            if is_matrix(name, weight):
                is_residual = name.split(".")[-2] in residual
                nn.init.normal_(weight, std=0.02 / ((2 * shape.layers) ** 0.5 if is_residual else 1))

    def forward(self, ids: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = self.token_embd(ids)
        for block in self.blk:
            x = block(x, cos, sin)
        return F.linear(self.output_norm(x), self.token_embd.weight)

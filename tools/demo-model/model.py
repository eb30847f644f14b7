"""The demo model: Llama as llama.cpp computes it, small enough to read in one sitting.

    ids (B,T) -> embed (B,T,256) -> 6 x [ += attention(norm(x)), += swiglu(norm(x)) ] -> norm -> embed^T -> logits (B,T,2048)

Rotary pairs are neighbours (2i, 2i+1), which is llama.cpp's order for this architecture, so that the export copies the
query and key matrices as they are. The output matrix is the embedding (tied).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass(frozen=True)
class Shape:
    """Every matrix row is a multiple of 256 long, so that any ggml quantization fits."""

    vocabulary: int = 2048
    width: int = 256
    layers: int = 6
    heads: int = 4
    key_value_heads: int = 2
    head: int = 64
    feed_forward: int = 512
    context: int = 8192
    rope_base: float = 10000.0
    norm_epsilon: float = 1e-5


def rotation(shape: Shape, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of position x frequency, each (T, head/2)."""
    frequency = shape.rope_base ** (-torch.arange(0, shape.head, 2, dtype=torch.float64) / shape.head)
    angle = torch.outer(torch.arange(length, dtype=torch.float64), frequency)
    return angle.cos().float(), angle.sin().float()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    even, odd = x[..., 0::2], x[..., 1::2]  # (B, heads, T, head/2)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Norm(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.width))
        self.epsilon = shape.norm_epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.epsilon)


class Block(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        linear = lambda rows, columns: nn.Linear(rows, columns, bias=False)  # noqa: E731
        self.shape = shape
        self.attn_norm, self.ffn_norm = Norm(shape), Norm(shape)
        self.attn_q = linear(shape.width, shape.heads * shape.head)
        self.attn_k = linear(shape.width, shape.key_value_heads * shape.head)
        self.attn_v = linear(shape.width, shape.key_value_heads * shape.head)
        self.attn_output = linear(shape.heads * shape.head, shape.width)
        self.ffn_gate, self.ffn_up = linear(shape.width, shape.feed_forward), linear(shape.width, shape.feed_forward)
        self.ffn_down = linear(shape.feed_forward, shape.width)

    def attention(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        split = lambda y, heads: y.view(batch, length, heads, self.shape.head).transpose(1, 2)  # noqa: E731
        q = rotate(split(self.attn_q(x), self.shape.heads), cos, sin)
        k = rotate(split(self.attn_k(x), self.shape.key_value_heads), cos, sin)
        v = split(self.attn_v(x), self.shape.key_value_heads)
        group = self.shape.heads // self.shape.key_value_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.attn_output(y.transpose(1, 2).reshape(batch, length, -1))

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attn_norm(x), cos, sin)
        h = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))


class DemoModel(nn.Module):
    """Parameter names are the GGUF names, less ".weight"."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocabulary, shape.width)
        self.blk = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.output_norm = Norm(shape)
        residual = {"attn_output", "ffn_down"}  # 2 per layer add up in the residual stream; begin them smaller
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                is_residual = name.split(".")[-2] in residual
                nn.init.normal_(weight, std=0.02 / ((2 * shape.layers) ** 0.5 if is_residual else 1))

    def forward(self, ids: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = self.token_embd(ids)
        for block in self.blk:
            x = block(x, cos, sin)
        return F.linear(self.output_norm(x), self.token_embd.weight)

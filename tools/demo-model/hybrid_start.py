"""Initial weights of the hybrid model that already know how to copy, as `head_start.py` has them for the Llama.

    embedding      channel 0 is constant, so that gates of convolutions can begin as constants
    convolution 0  half of its channels bring along the token before, and write it to a subspace
    full 2         query: this token, key: the predecessor noted there, in the slow rotary pairs; value: the token
    attention      value, then output is a projection onto itself: whatever a head learns to look at, it copies
"""

from __future__ import annotations

import torch
import torch.nn as nn

from head_start import CONSTANT, SPREAD, spread_embedding
from model import Block, Convolution, DemoModel, Shape

SLOW_PAIRS = slice(16, None)  # with RoPE's base 1000000 they turn less than one radian in 1000 tokens
MATCH_SHARPNESS = 1.5  # weights of the norms of queries and keys where predecessors are matched


@torch.no_grad()
def lay_out(model: DemoModel) -> None:
    shape = model.shape
    basis = spread_embedding(model)
    for block in model.blk:
        if block.mixer == "convolution":
            open_gates(block.shortconv, shape)
    bring_along(model.blk[0].shortconv, shape, basis)
    matching = shape.mixers.index("full")
    for index, block in enumerate(model.blk):
        if block.mixer != "convolution":
            copy_values(block, shape, basis if index == matching else None)
    match_predecessors(model.blk[matching], shape, basis)


def open_gates(convolution: Convolution, shape: Shape) -> None:
    """Both gates begin near 1, and the convolution reads the token itself and what came before it."""
    gates = convolution.in_proj.weight[: 2 * shape.width]
    gates[:, 0] = 1 / CONSTANT
    nn.init.normal_(convolution.in_proj.weight[2 * shape.width :], std=shape.width**-0.5)


def bring_along(convolution: Convolution, shape: Shape, basis: torch.Tensor) -> None:
    head = shape.head
    present, previous = basis[:head], basis[head : 2 * head]
    convolution.in_proj.weight[: 2 * shape.width].view(2, shape.width, shape.width)[:, :head, 1:] = 0
    convolution.in_proj.weight[2 * shape.width : 2 * shape.width + head] = present
    convolution.conv[:head] = 0
    convolution.conv[:head, -2] = 1
    convolution.out_proj.weight[:, :head] = 1.5 * SPREAD * previous.T


def copy_values(block: Block, shape: Shape, basis: torch.Tensor | None) -> None:
    """The matching heads copy with more weight, because they know where to look."""
    head, group = shape.head, shape.heads // shape.key_value_heads
    for pair in range(shape.key_value_heads):
        begin = 128 + pair * (head - 1)  # the two overlap by one row, for the basis has only 255
        value = nn.init.orthogonal_(torch.empty(head, shape.width)) if basis is None else basis[begin : begin + head]
        block.attn_v.weight[pair * head : (pair + 1) * head] = value
        for member in range(pair * group, (pair + 1) * group):
            strength = 2.0 if basis is not None and member % group == 0 else 0.5
            block.attn_output.weight[:, member * head : (member + 1) * head] = strength * SPREAD * value.T


def match_predecessors(block: Block, shape: Shape, basis: torch.Tensor) -> None:
    """Each key/value head compares 32 dimensions; the first query head over it does the matching."""
    head, group = shape.head, shape.heads // shape.key_value_heads
    slow = torch.arange(head).view(2, head // 2)[:, SLOW_PAIRS].flatten()
    for pair in range(shape.key_value_heads):
        matched = slice(pair * len(slow), (pair + 1) * len(slow))
        block.attn_k.weight[pair * head + slow] = basis[head : 2 * head][matched]
        block.attn_q.weight[pair * group * head + slow] = basis[:head][matched]
    block.attn_q_norm.weight.fill_(MATCH_SHARPNESS)
    block.attn_k_norm.weight.fill_(MATCH_SHARPNESS)

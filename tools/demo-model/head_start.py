"""Initial weights that already know how to copy.

A story holds together by copying: names, colours and places come back. Found by gradient descent alone, the circuit for
it (one head brings along the previous token, a later one looks for "what followed this token before") takes more text
than a patient CPU can read in an hour: three million tokens of stories left no trace of it. So it is laid out by hand,
and training only has to use and refine it:

    embedding    channel 0 is constant, a place to hang attention on that depends on position alone
    layer 0      head 0 looks one token back (its rotary phases agree at distance 1) and writes that token to a subspace
    layer 1      query: this token, key: the predecessor noted there, in the slow rotary pairs; value: the token
    layers 1-5   value, then output is a projection onto itself: whatever a head learns to look at, it copies
"""

from __future__ import annotations

import torch
import torch.nn as nn

from model import Block, DemoModel, Shape

SPREAD = 0.25  # of the embedding; wide, so that tokens are told apart by their direction from the first step on
CONSTANT = 8.0  # channel 0, in spreads
FAST = 20  # channels of a head whose rotary pairs turn fast enough to tell neighbours apart
SLOW = 40  # from this channel on they turn less than one radian in 300 tokens


def spread_embedding(model: DemoModel) -> torch.Tensor:
    """Sets embedding and output norm. Returns an orthogonal basis of the channels behind the constant one."""
    shape = model.shape
    nn.init.normal_(model.token_embd.weight, std=SPREAD)
    model.token_embd.weight[:, 0] = CONSTANT * SPREAD
    model.output_norm.weight.fill_(0.2)  # keeps the first guesses modest in spite of the wide embedding
    basis = torch.zeros(shape.width, shape.width)
    basis[:-1, 1:] = nn.init.orthogonal_(torch.empty(shape.width - 1, shape.width - 1))
    return basis


@torch.no_grad()
def lay_out(model: DemoModel) -> None:
    shape = model.shape
    basis = spread_embedding(model)
    look_one_back(model.blk[0], shape, basis)
    copy_values(model, basis)
    match_predecessors(model.blk[1], shape, basis)


def look_one_back(block: Block, shape: Shape, basis: torch.Tensor) -> None:
    present, previous = basis[: shape.head], basis[shape.head : 2 * shape.head]
    frequency = shape.rope_base ** (-torch.arange(0, FAST, 2) / shape.head)
    block.attn_q.weight[: shape.head] = 0
    block.attn_k.weight[: shape.head] = 0
    block.attn_k.weight[0:FAST:2, 0] = 2.0
    block.attn_q.weight[0:FAST:2, 0] = frequency.cos()
    block.attn_q.weight[1:FAST:2, 0] = -frequency.sin()
    block.attn_v.weight[: shape.head] = present
    block.attn_output.weight[:, : shape.head] = 1.5 * SPREAD * previous.T


def copy_values(model: DemoModel, basis: torch.Tensor) -> None:
    """What layer 1's matching heads copy weighs more: they are the ones that know where to look."""
    shape = model.shape
    head, group = shape.head, shape.heads // shape.key_value_heads
    for index, block in enumerate(model.blk[1:], start=1):
        for pair in range(shape.key_value_heads):
            begin = 128 + pair * (head - 1)  # the two overlap by one row, for the basis has only 255
            value = basis[begin : begin + head] if index == 1 else nn.init.orthogonal_(torch.empty(head, shape.width))
            block.attn_v.weight[pair * head : (pair + 1) * head] = value
            for member in range(pair * group, (pair + 1) * group):
                strength = 2.0 if index == 1 and member % group == 0 else 0.5
                block.attn_output.weight[:, member * head : (member + 1) * head] = strength * SPREAD * value.T


def match_predecessors(block: Block, shape: Shape, basis: torch.Tensor) -> None:
    """Each key/value head compares 24 dimensions; the first query head over it does the matching."""
    head, group = shape.head, shape.heads // shape.key_value_heads
    for pair in range(shape.key_value_heads):
        matched = slice(pair * (head - SLOW), (pair + 1) * (head - SLOW))
        block.attn_k.weight[pair * head + SLOW : (pair + 1) * head] = 2.2 * basis[head : 2 * head][matched]
        first = pair * group * head
        block.attn_q.weight[first + SLOW : first + head] = 2.2 * basis[:head][matched]

"""Muon: momentum whose every update is made orthogonal, so that no direction of a matrix is starved.

torch.optim.Muon does the same one matrix at a time and in bf16, which on a CPU takes a fifth of the step; here
matrices of one shape go through the iteration together, in f32.
"""

from __future__ import annotations

import torch


def orthogonalised(stack: torch.Tensor, iterations: int = 5) -> torch.Tensor:
    """(N, rows, columns) -> the nearest matrices with singular values near 1, by Newton-Schulz (quintic, Jordan 2024)."""
    tall = stack.shape[1] > stack.shape[2]
    x = stack.mT if tall else stack
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(iterations):
        a = x @ x.mT
        b = torch.baddbmm(a, a, a, beta=-4.7750, alpha=2.0315)
        x = torch.baddbmm(x, b, x, beta=3.4445)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, matrices: list[torch.nn.Parameter], lr: float, momentum: float = 0.95, weight_decay: float = 0.05):
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[torch.nn.Parameter]] = {}
            for p in group["params"]:
                by_shape.setdefault(p.shape, []).append(p)
            for shape, matrices in by_shape.items():
                looks_ahead = []
                for p in matrices:
                    momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                    momentum.lerp_(p.grad, 1 - group["momentum"])
                    looks_ahead.append(p.grad.lerp(momentum, group["momentum"]))  # Nesterov
                scale = 0.2 * max(shape) ** 0.5  # elements move as far as AdamW's do at the same rate
                for p, update in zip(matrices, orthogonalised(torch.stack(looks_ahead))):
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(update, alpha=-group["lr"] * scale)

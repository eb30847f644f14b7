"""Draws loss.csv as loss.svg: loss over tokens seen, one grey band for every context length."""

from __future__ import annotations

import csv
from pathlib import Path

WIDTH, HEIGHT, MARGIN = 720, 360, 48
LOSS_MAX = 4.0  # the first steps lie above and would flatten the rest


def draw_curve(source: Path, target: Path) -> None:
    with source.open() as file:
        rows = list(csv.DictReader(file))
    tokens_max = int(rows[-1]["tokens"])

    def x(row: dict[str, str]) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * int(row["tokens"]) / tokens_max

    def y(loss: float) -> float:
        return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * min(loss, LOSS_MAX) / LOSS_MAX

    training = " ".join(f"{x(r):.1f},{y(float(r['loss'])):.1f}" for r in rows)
    held_out = [(x(r), y(float(r["validation"]))) for r in rows if r["validation"]]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    begin = rows[0]
    for i, row in enumerate(rows):
        if i + 1 == len(rows) or rows[i + 1]["context"] != row["context"]:
            shade = "#f4f4f4" if sum('class="band"' in p for p in parts) % 2 == 0 else "#e8e8e8"
            parts.append(f'<rect class="band" x="{x(begin):.1f}" y="{MARGIN}" width="{x(row) - x(begin):.1f}" height="{HEIGHT - 2 * MARGIN}" fill="{shade}"/>')  # fmt: skip
            parts.append(f'<text x="{x(begin) + 3:.1f}" y="{MARGIN - 6}" fill="#666">{row["context"]}</text>')
            begin = row
    for loss in range(int(LOSS_MAX) + 1):
        parts.append(f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y(loss)}" y2="{y(loss)}" stroke="#ccc"/>')
        parts.append(f'<text x="{MARGIN - 8}" y="{y(loss) + 4}" text-anchor="end">{loss}</text>')
    parts.append(f'<polyline points="{training}" fill="none" stroke="#3366aa" stroke-width="1.2"/>')
    parts += [f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="2.5" fill="#cc4422"/>' for cx, cy in held_out]
    caption = f"loss in nats per token over {tokens_max / 1e6:.1f} million tokens; line: training, dots: held out (context 512); above: context"
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 16}" text-anchor="middle">{caption}</text>')
    target.write_text("\n".join([*parts, "</svg>"]) + "\n")

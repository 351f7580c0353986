"""Your own mixer, compared with LSTM and DeltaNet on state tracking: can it count modulo 2 and 3, and keep a bit?

python own_mixer.py --out rotations             # a few minutes; then open rotations/index.html
python own_mixer.py --steps 20 --seeds 1        # only to see that it works
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

import assay

TASKS = [assay.task("parity"), assay.task("cyclic", n=3), assay.task("flip-flop")]
LENGTHS = {"Bin0": (2, 16), "Bin1": (17, 32), "Bin2": (33, 64)}  # training uses those of Bin0, tests use all


class Rotation(nn.Module):
    """Each token rotates a point on each of `width` circles by an angle: [batch, time, width] to the same shape.

    The state is the sum of the angles so far, so a cumulative sum computes all positions at once. The output is a
    linear map of the points.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.angle = nn.Linear(width, width)
        self.out = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        total = self.angle(x).cumsum(dim=1)
        return self.out(torch.cat([total.cos(), total.sin()], dim=-1))


class Rotations(nn.Module):
    """A whole model of such mixers: tokens [batch, time] to logits [batch, time, answers]."""

    def __init__(self, vocab: int, features: int, answers: int, width: int = 32, layers: int = 1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.mixers = nn.ModuleList(Rotation(width) for _ in range(layers))
        self.read = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, answers))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for norm, mixer in zip(self.norms, self.mixers, strict=True):
            x = x + mixer(norm(x))
        return self.read(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600, help="training steps of each run")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each model on each task")
    parser.add_argument("--out", help="the folder for a page with tables, charts, CSV and LaTeX")
    options = parser.parse_args()
    results = assay.compare(
        TASKS,
        [Rotations, assay.named_model("lstm", width=32, layers=1), assay.named_model("delta-net", width=32, layers=1)],
        seeds=options.seeds,
        training={"steps": options.steps, "lr": 1e-2, "lengths": LENGTHS["Bin0"]},
        testing={"bins": [{"name": name, "low": low, "high": high} for name, (low, high) in LENGTHS.items()]},
    )
    print(results)
    if options.out:
        results.save(options.out)


if __name__ == "__main__":
    main()

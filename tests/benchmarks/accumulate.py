"""What `bsprof.accumulate` costs over the same loop written by hand, per micro-step.

python tests/benchmarks/accumulate.py [--rounds 60] [--width 256]

Both loops run the same plan on the same data, in turn, update by update; the order changes every
round. Printed: medians of the processor time per micro-step (one thread; other programs disturb it
less than the clock on the wall), and the ratio of paired updates (median, with the middle half). A
third loop watches the norm, a fourth the noise scale.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import bsprof
from bsprof.accumulation.plan_file import plan_of_pieces

PIECES = (16, 16, 16, 16, 16, 16, 16, 9)
CLIP = 1.0


def model(width):
    torch.manual_seed(0)
    layers = [nn.Linear(width, width), nn.GELU()] * 3
    return nn.Sequential(*layers, nn.Linear(width, 10))


def loss(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


def by_hand(network):
    optimizer = torch.optim.AdamW(network.parameters())
    total = sum(PIECES)

    def update(batch):
        start = 0
        optimizer.zero_grad(set_to_none=True)
        for size in PIECES:
            piece = (batch[0][start : start + size], batch[1][start : start + size])
            (loss(network, piece) * (size / total)).backward()
            start += size
        nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update


def accumulated(network, watch=None):
    optimizer = torch.optim.AdamW(network.parameters())
    plan = plan_of_pieces([list(PIECES)])
    return bsprof.accumulate(plan, network, optimizer, loss=loss, clip_norm=CLIP, watch=watch)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--width", type=int, default=256)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    loops = {
        "by hand": by_hand(model(arguments.width)),
        "accumulate": accumulated(model(arguments.width)),
        "with watch": accumulated(model(arguments.width), bsprof.Watch()),
        "with noise scale": accumulated(model(arguments.width), bsprof.Watch(noise_scale=True)),
    }
    batch = (torch.randn(sum(PIECES), arguments.width), torch.randint(10, (sum(PIECES),)))
    seconds = {name: [] for name in loops}
    for turn in range(arguments.rounds + 5):
        names = list(loops)
        random.Random(turn).shuffle(names)
        for name in names:
            began = time.process_time()
            loops[name](batch)
            if turn >= 5:  # the first updates make optimizer state and warm caches
                seconds[name].append(time.process_time() - began)
    hand = seconds["by hand"]
    for name, values in seconds.items():
        ratios = [a / b for a, b in zip(values, hand, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(
            f"{name:17} {1e6 * statistics.median(values) / len(PIECES):8.0f} us a micro-step, "
            f"{middle:.3f} times by hand ({low:.3f} to {high:.3f}); fastest "
            f"{min(values) / min(hand):.3f}"
        )


if __name__ == "__main__":
    main()

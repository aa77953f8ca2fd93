"""What other tools' arithmetic trains with, from a target, a number of ranks and a limit.

Each function is the published formula and nothing else; sources beside it. All take the samples
per update that are wanted, the ranks, and the largest micro-batch that fits, and give what runs:
micro-batch, micro-steps per rank, samples per update. None is a refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Split(NamedTuple):
    """Equal pieces on all ranks."""

    micro_batch_size: int
    accumulation_steps: int
    effective_batch_size: int


def _split(size: int, steps: int, ranks: int) -> Split:
    return Split(size, steps, size * steps * ranks)


def axolotl(target: int, ranks: int, limit: int) -> Split | None:
    """`batch_size` per rank over `micro_batch_size`, rounded down (0.19, utils/config).

    Its schema's hint: "divide batch_size / micro_batch_size / number of gpus".
    """
    size = min(limit, max(1, target // ranks))
    return _split(size, max(1, target // size // ranks), ranks)


def ludwig(target: int, ranks: int, limit: int) -> Split | None:
    """`max(int(effective / batch / workers), 1)` (utils/trainer_utils.py)."""
    size = min(limit, max(1, target // ranks))
    return _split(size, max(int(target / size / ranks), 1), ranks)


def deepspeed(target: int, ranks: int, limit: int) -> Split | None:
    """`train_batch // micro // world`, then refused unless the product is the target (0.19.8)."""
    size = min(limit, max(1, target // ranks))
    found = _split(size, target // size // ranks, ranks)
    return found if found.effective_batch_size == target else None


def yolo(target: int, ranks: int, limit: int) -> Split | None:
    """`max(round(nominal / batch), 1)`, where batch is of all ranks (ultralytics/yolov5)."""
    size = min(limit, max(1, target // ranks))
    return _split(size, max(round(target / (size * ranks)), 1), ranks)


def llm_analysis(target: int, ranks: int, limit: int) -> Split | None:
    """The largest divisor of a rank's share up to the limit; refused if ranks do not divide it."""
    if target % ranks:
        return None
    share = target // ranks
    size = next(d for d in range(min(share, limit), 0, -1) if share % d == 0)
    return _split(size, share // size, ranks)


PEERS: dict[str, Callable[[int, int, int], Split | None]] = {
    "axolotl": axolotl,
    "Ludwig": ludwig,
    "DeepSpeed": deepspeed,
    "YOLO": yolo,
    "llm-analysis": llm_analysis,
}

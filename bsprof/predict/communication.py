"""Seconds that ranks spend on gradients and parameters of one another, and what of it shows.

A collective takes a latency plus bytes over the bus bandwidth (nccl-tests, PERFORMANCE.md): an
all-reduce of S bytes over n ranks moves 2 (n - 1) / n S, an all-gather or reduce-scatter half of
that.
"""

from __future__ import annotations

from dataclasses import dataclass

from bsprof.predict.stream import Stream
from bsprof.predict.terms.collectives import BUCKET_BYTES, bucket_sizes
from bsprof.predict.terms.sharding import SYNCS_EACH_STEP, Strategy
from bsprof.predict.terms.spans import live_gradients
from bsprof.records import Category, DeviceSpec, Precision

NVLINK_SHARE = 0.82
"""Of a link's rate in one direction that large messages reach among 8 GPUs behind a switch: A100
207 of 300 GB/s, H100 384 and H200 391 of 450 (ai-dynamo/aiconfigurator, nccl 2.27, Apache-2.0)."""
PCIE_SHARE = 0.4
"""The same over PCIe, where it depends on the host: 36 of 64 GB/s between two RTX PRO 6000, 20 and
5.1 of 32 between two and four L40S (the same source)."""
NVLINK_SPREAD, PCIE_SPREAD = 0.15, 0.7
"""Standard deviation of the logarithm of these shares between machines (assumed from the same)."""
LATENCY_S = 25e-6
"""Of one collective: 18 to 36 microseconds (the same source)."""

HALF_BYTES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How ranks are joined.

    Attributes:
        bus_bytes_per_s: That a collective reaches with large messages.
        spread: Standard deviation of its logarithm.
        source: Where the number comes from.
    """

    bus_bytes_per_s: float
    spread: float
    source: str


def link_of(device: DeviceSpec, bus_bytes_per_s: float | None = None) -> Link | None:
    """The link between devices of one kind in one machine; None where nothing is known of it.

    Args:
        bus_bytes_per_s: As measured by the user (`busbw` of nccl-tests); None takes the device's
            fastest link and the share of it that others reached.
    """
    if bus_bytes_per_s is not None:
        return Link(bus_bytes_per_s=bus_bytes_per_s, spread=0.05, source="given")
    links = device.links_bytes_per_s
    for name, share, spread in (
        ("nvlink", NVLINK_SHARE, NVLINK_SPREAD),
        ("infinity_fabric", NVLINK_SHARE, PCIE_SPREAD),
        ("pcie", PCIE_SHARE, PCIE_SPREAD),
    ):
        if name in links:
            return Link(
                bus_bytes_per_s=share * links[name],
                spread=spread,
                source=f"{share:.0%} of the {name} rate of the catalogue",
            )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What ranks exchange, in seconds of the link, and what compute it can hide behind.

    Attributes:
        gather_s: Parameters gathered in every micro-step, forward and backward.
        reduce_s: Gradients reduced in the micro-step that synchronises.
        reduces_always: Whether gradients are reduced in every micro-step.
        last_s: Of the reduction that begins when the backward pass has ended.
        update_s: Parameters handed round after the optimizer step.
        optimizer_share: Of the optimizer's work that one rank does.
    """

    gather_s: float = 0.0
    reduce_s: float = 0.0
    reduces_always: bool = False
    last_s: float = 0.0
    update_s: float = 0.0
    optimizer_share: float = 1.0

    def micro_step_s(self, compute_s: float, slower: float = 1.0) -> float:
        """Seconds of a micro-step that does not synchronise.

        Args:
            compute_s: Of its forward and backward pass alone.
            slower: Times what the link is assumed to take.
        """
        if self.reduces_always:
            return max(compute_s, (self.gather_s + self.reduce_s) * slower) + self.last_s * slower
        return max(compute_s, self.gather_s * slower)

    def synchronising_s(self, compute_s: float, backward_s: float, slower: float = 1.0) -> float:
        """Seconds of a micro-step whose gradients are reduced while its backward pass runs."""
        before = compute_s - backward_s
        early = max(0.0, self.reduce_s - self.last_s)
        behind = max(backward_s, early * slower) + self.last_s * slower
        return max(before + behind, (self.gather_s + self.reduce_s) * slower)


def traffic(
    stream: Stream, strategy: str, world_size: int, link: Link, precision: Precision
) -> Traffic:
    """What a strategy exchanges (ZeRO, arXiv 1910.02054; torch's DDP and FSDP2).

    Args:
        stream: Of one device alone.
        strategy: `ddp`, `fsdp`, `zero1`, `zero2` or `zero3`.
        world_size: Ranks, at least two.
        link: Between them.
        precision: Under automatic mixed precision FSDP gathers and reduces in 16 bit.
    """
    kind = Strategy(strategy)
    gradients = [stream.sizes[block] for block in live_gradients(stream)]
    reduced = sum(gradients)
    parameters = sum(
        size
        for size, category in zip(stream.sizes, stream.categories, strict=True)
        if category is Category.WEIGHTS
    )
    once = (world_size - 1) / world_size / link.bus_bytes_per_s
    halves = kind in (Strategy.FSDP, Strategy.ZERO3) and precision in (
        Precision.AMP_BF16,
        Precision.AMP_FP16,
    )
    share = 0.5 if halves else 1.0
    buckets = bucket_sizes(gradients)
    latency = LATENCY_S * len(buckets)
    last = min(share * reduced, BUCKET_BYTES)
    if kind is Strategy.DDP:
        return Traffic(
            reduce_s=2 * once * reduced + latency,
            last_s=2 * once * min(buckets[-1:] or [0]) + LATENCY_S,
        )
    sharded = Traffic(
        reduce_s=once * share * reduced + latency,
        last_s=once * last + LATENCY_S,
        reduces_always=kind in SYNCS_EACH_STEP,
        optimizer_share=1 / world_size,
    )
    if kind in (Strategy.ZERO1, Strategy.ZERO2):
        return Traffic(
            reduce_s=sharded.reduce_s,
            last_s=sharded.last_s,
            reduces_always=sharded.reduces_always,
            optimizer_share=sharded.optimizer_share,
            update_s=once * parameters + LATENCY_S,
        )
    return Traffic(
        gather_s=2 * (once * share * parameters + latency),
        reduce_s=sharded.reduce_s,
        last_s=sharded.last_s,
        reduces_always=sharded.reduces_always,
        optimizer_share=sharded.optimizer_share,
    )

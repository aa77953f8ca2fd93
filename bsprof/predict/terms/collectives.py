"""Memory of collectives: NCCL's buffers on the device, buckets of DistributedDataParallel."""

from __future__ import annotations

from bsprof.predict.stream import Insertion, Stream
from bsprof.predict.terms.spans import live_gradients, run_start
from bsprof.records import Category, DeviceSpec, Place, Quantity, Term

MIB = 2**20

CONNECTION_BYTES = 10 * MIB
"""Buffers of all protocols that one connection of one channel allocates (NVIDIA/nccl #1685:
allocations of 10,485,760 B); 4 MiB of it are `NCCL_BUFFSIZE`."""

RING_CONNECTIONS = 2
"""A ring has two, whatever the number of ranks (NVIDIA/nccl #986)."""

LINKED_CHANNELS = 24
PCIE_CHANNELS = 4
"""Channels that NCCL opens; with NVLink 24 on A100 and H100, over PCIe few (assumed)."""

FIRST_BUCKET_BYTES = MIB
BUCKET_BYTES = 25 * MIB
"""`kDefaultFirstBucketBytes` and `kDefaultBucketBytesCap` of torch's `reducer.hpp`."""

BUCKET_NAME = "gradient buckets"


def communicator_term(device: DeviceSpec) -> Term:
    """NCCL's buffers of one communicator, outside the allocator.

    One communicator serves data parallelism, sharded or not. The reports spread widely: 0.9 GiB
    on two GPUs (stas00/ml-engineering), about 0.5 GB on 8 H100 before an all-to-all (#1685),
    1.6 GB with the context (#864).
    """
    linked = "nvlink" in device.links_bytes_per_s
    channels = LINKED_CHANNELS if linked else PCIE_CHANNELS
    value = channels * RING_CONNECTIONS * CONNECTION_BYTES
    return Term(
        name="NCCL buffers",
        bytes=Quantity(value=value, low=0.5 * value, high=max(2 * value, 600 * MIB)),
        place=Place.OUTSIDE,
        source="10 MiB per channel and connection (NVIDIA/nccl #986, #1685)",
    )


def bucket_insertions(stream: Stream, *, as_view: bool) -> list[Insertion]:
    """Flat buckets that hold all gradients, from the wrapping of the model to the end.

    Args:
        stream: The traced run.
        as_view: `gradient_as_bucket_view`: the buckets are the gradients, else a copy of them.
    """
    category = Category.GRADIENTS if as_view else Category.LIBRARIES
    start = run_start(stream)
    return [
        Insertion(position=start, bytes=size, until=None, name=BUCKET_NAME, category=category)
        for size in bucket_sizes([stream.sizes[block] for block in live_gradients(stream)])
    ]


def bucket_sizes(gradients: list[int]) -> list[int]:
    """Bytes of each bucket: gradients in the order they become ready, until a cap is reached."""
    sizes = []
    cap, filled = FIRST_BUCKET_BYTES, 0
    for gradient in gradients:
        filled += gradient
        if filled >= cap:
            sizes.append(filled)
            cap, filled = BUCKET_BYTES, 0
    if filled:
        sizes.append(filled)
    return sizes

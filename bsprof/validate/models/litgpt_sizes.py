"""Numbers of the decoders that litgpt's tables name, from their published configurations."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model's numbers, as published in its configuration.

    Attributes:
        groups: Heads of keys and values.
        rotary: Features of a head that are rotated.
        parallel: Whether both halves of a block read its input, through one norm if `shared`.
        gated: `silu` or `gelu` of a gate; empty for a plain GELU.
        offset: Whether norms multiply by one more than their weight, and embeddings are scaled.
    """

    layers: int
    width: int
    heads: int
    groups: int
    head: int
    hidden: int
    vocabulary: int
    rotary: int
    parallel: bool = False
    shared: bool = False
    gated: str = ""
    bias: bool = False
    norm: str = "rms"
    offset: bool = False
    post_norms: bool = False
    cap: bool = False


SIZES = {
    "phi-1.5": Size(
        layers=24,
        width=2048,
        heads=32,
        groups=32,
        head=64,
        hidden=8192,
        vocabulary=51_200,
        rotary=32,
        parallel=True,
        shared=True,
        bias=True,
        norm="layer",
    ),
    "phi-2": Size(
        layers=32,
        width=2560,
        heads=32,
        groups=32,
        head=80,
        hidden=10_240,
        vocabulary=51_200,
        rotary=32,
        parallel=True,
        shared=True,
        bias=True,
        norm="layer",
    ),
    "phi-3-mini": Size(
        layers=32,
        width=3072,
        heads=32,
        groups=32,
        head=96,
        hidden=8192,
        vocabulary=32_064,
        rotary=96,
        gated="silu",
    ),
    "llama-2-7b": Size(
        layers=32,
        width=4096,
        heads=32,
        groups=32,
        head=128,
        hidden=11_008,
        vocabulary=32_000,
        rotary=128,
        gated="silu",
    ),
    "llama-2-13b": Size(
        layers=40,
        width=5120,
        heads=40,
        groups=40,
        head=128,
        hidden=13_824,
        vocabulary=32_000,
        rotary=128,
        gated="silu",
    ),
    "llama-3.2-1b": Size(
        layers=16,
        width=2048,
        heads=32,
        groups=8,
        head=64,
        hidden=8192,
        vocabulary=128_256,
        rotary=64,
        gated="silu",
    ),
    "llama-3.2-3b": Size(
        layers=28,
        width=3072,
        heads=24,
        groups=8,
        head=128,
        hidden=8192,
        vocabulary=128_256,
        rotary=128,
        gated="silu",
    ),
    "mistral-7b": Size(
        layers=32,
        width=4096,
        heads=32,
        groups=8,
        head=128,
        hidden=14_336,
        vocabulary=32_000,
        rotary=128,
        gated="silu",
    ),
    "mistral-7b-v0.2": Size(
        layers=32,
        width=4096,
        heads=32,
        groups=8,
        head=128,
        hidden=14_336,
        vocabulary=32_000,
        rotary=128,
        gated="silu",
    ),
    "tiny-llama": Size(
        layers=22,
        width=2048,
        heads=32,
        groups=4,
        head=64,
        hidden=5632,
        vocabulary=32_000,
        rotary=64,
        gated="silu",
    ),
    "falcon-7b": Size(
        layers=32,
        width=4544,
        heads=71,
        groups=1,
        head=64,
        hidden=18_176,
        vocabulary=65_024,
        rotary=64,
        parallel=True,
        shared=True,
        norm="layer",
    ),
    "gemma-2b": Size(
        layers=18,
        width=2048,
        heads=8,
        groups=1,
        head=256,
        hidden=16_384,
        vocabulary=256_000,
        rotary=256,
        gated="gelu",
        offset=True,
    ),
    "gemma-2-2b": Size(
        layers=26,
        width=2304,
        heads=8,
        groups=4,
        head=256,
        hidden=9216,
        vocabulary=256_000,
        rotary=256,
        gated="gelu",
        offset=True,
        post_norms=True,
        cap=True,
    ),
}
"""By name. No output projection is tied to the embedding: litgpt keeps a
copy also where the published model shares it (Gemma, Llama 3.2). Sizes from the models' published
configurations, vocabularies padded as litgpt pads them."""

"""What defines a decoder-only language model, read from a catalogue entry and checked."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeVar, cast

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.attention import check_attention
from bsprof.workloads.catalogue.entries import Entry
from bsprof.workloads.families.settings import check_length

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}
NORMS = ("layer", "rms")
NORM_PLACES = ("before", "after", "both")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSettings:
    """What defines a decoder; the defaults are what most of them do.

    Attributes:
        layers: Blocks.
        width: Features of a token.
        heads: Attention heads.
        key_heads: Heads of keys and values; each serves heads / key_heads queries.
        head_width: Features of a head.
        feed_forward: Features between the linear layers of a block's second half.
        vocabulary: Tokens that exist, those that only pad the table included.
        seq_len: Tokens of a sample.
        positions: Rows of the table of learned positions; 0 has none.
        first_position: The row of the first token (OPT keeps two rows for padding).
        rotary_width: Features of a head that are rotated by position; 0 rotates none.
        rotary_base: Base of the rotations' frequencies.
        alibi: Whether scores fall linearly with distance.
        norm: `layer` or `rms`.
        norm_bias: Whether layer normalisation adds a bias.
        norm_offset: Whether the norms' weights are kept as differences from one (Gemma).
        norm_place: `before` a block's halves, `after` their sums (then the stack ends without
            one), or `both` before a half and after it, ahead of the sum (Gemma 2).
        norm_epsilon: Added to the variance by the norms.
        query_norm: Whether all queries, and all keys, of a token are normalised together (OLMoE).
        parallel: Whether both halves of a block read its input (GPT-NeoX).
        activation: `gelu`, `gelu-tanh`, `relu` or `silu`.
        gated: Whether the activation multiplies a second product (SwiGLU, GeGLU).
        bias: Whether linear layers add a bias; the output projection never does.
        qkv_bias: Whether query, key and value do though the others do not (Qwen).
        fused_qkv: Whether query, key and value are one product.
        fused_gate: Whether the gate and what it multiplies are one product.
        tied: Whether the output projection is the token embedding.
        embedding_width: Features of the token embedding, projected to and from the width; 0 is
            the width itself (OPT-350m).
        scaled_embedding: Whether embeddings are multiplied by sqrt(width) (Gemma).
        attention_cap: Scores are squeezed softly below it, cap x tanh(score / cap); 0 does not.
        logit_cap: Likewise the logits.
        window: Nearest tokens that a token sees, itself included; 0 is all before it.
        window_every: The first of every so many blocks has the window, the others see all.
        dropout: Share dropped of what each half of a block adds.
        attention_dropout: Share of attention weights dropped.
        embedding_dropout: Share of the embeddings dropped.
    """

    layers: int
    width: int
    heads: int
    key_heads: int
    head_width: int
    feed_forward: int
    vocabulary: int
    seq_len: int
    positions: int = 0
    first_position: int = 0
    rotary_width: int = 0
    rotary_base: int = 10_000
    alibi: bool = False
    norm: str = "layer"
    norm_bias: bool = True
    norm_offset: bool = False
    norm_place: str = "before"
    norm_epsilon: float = 1e-5
    query_norm: bool = False
    parallel: bool = False
    activation: str = "gelu"
    gated: bool = False
    bias: bool = False
    qkv_bias: bool = False
    fused_qkv: bool = False
    fused_gate: bool = False
    tied: bool = False
    embedding_width: int = 0
    scaled_embedding: bool = False
    attention_cap: float = 0.0
    logit_cap: float = 0.0
    window: int = 0
    window_every: int = 1
    dropout: float = 0.0
    attention_dropout: float = 0.0
    embedding_dropout: float = 0.0


Settings = TypeVar("Settings", bound=DecoderSettings)

_POSSIBLY_ZERO = (
    "positions",
    "first_position",
    "rotary_width",
    "embedding_width",
    "window",
    "attention_cap",
    "logit_cap",
    "shared_feed_forward",
)
"""Numbers of which zero means without; all others but shares are above zero."""
_SHARES = ("dropout", "attention_dropout", "embedding_dropout")
_CHOICES: dict[str, Collection[str]] = {
    "activation": ACTIVATIONS,
    "norm": NORMS,
    "norm_place": NORM_PLACES,
}


def decoder_settings(kind: type[Settings], spec: WorkloadSpec, entry: Entry) -> Settings:
    """The settings of an entry under `--model-option` and `--seq-len`.

    Args:
        kind: The record to read them as.
        spec: What was asked for.
        entry: The entry of the catalogue.

    Raises:
        UsageError: a setting that no model can be built with, or a sequence beyond the learned
            positions.
    """
    values: dict[str, Any] = dict(entry.configured(spec.model_options))
    if spec.seq_len is not None:
        values["seq_len"] = spec.seq_len
    settings = kind(**values)
    for field in fields(settings):
        _check_value(entry, field.name, getattr(settings, field.name))
    _check_shape(entry, settings)
    return settings


def choose_attention(spec: WorkloadSpec, settings: DecoderSettings) -> str:
    """`sdpa` unless `--attention` says otherwise; `eager` where scores are capped.

    Raises:
        UsageError: no such attention, or `sdpa` where scores are capped: PyTorch's fused
            attention has no such step.
    """
    if settings.attention_cap == 0:
        return check_attention(spec.attention)
    if check_attention(spec.attention or "eager") == "sdpa":
        raise UsageError(
            f"--attention sdpa cannot compute the attention of {spec.model}",
            found=f"scores capped softly at {settings.attention_cap:g}",
            next_step="use --attention eager, or --model-option attention_cap=0 to train without",
        )
    return "eager"


def _check_value(entry: Entry, key: str, value: object) -> None:
    """Refuse a number or word that no model can be built with."""
    if key in _CHOICES:
        fine, allowed = value in _CHOICES[key], f"one of {', '.join(_CHOICES[key])}"
    elif isinstance(value, bool):
        return
    elif key in _SHARES:
        fine, allowed = 0 <= cast(float, value) < 1, "a number from 0 to below 1"
    elif key in _POSSIBLY_ZERO:
        fine, allowed = cast(float, value) >= 0, "a number from 0 up"
    else:
        fine, allowed = cast(float, value) > 0, "a number above 0"
    if not fine:
        raise UsageError(
            f"{entry.name} cannot be built with {key}={value}", next_step=f"give {allowed}"
        )


def _check_shape(entry: Entry, settings: DecoderSettings) -> None:
    """Refuse settings that do not go together."""
    if settings.heads % settings.key_heads:
        raise UsageError(
            f"{entry.name} needs a number of heads that is a multiple of its key_heads",
            found=f"heads={settings.heads}, key_heads={settings.key_heads}",
            next_step="change one of them with --model-option",
        )
    if settings.rotary_width > settings.head_width or settings.rotary_width % 2:
        raise UsageError(
            f"{entry.name} cannot rotate {settings.rotary_width} features of a head",
            found=f"head_width={settings.head_width}, rotary_width={settings.rotary_width}",
            next_step="give an even rotary_width up to head_width with --model-option",
        )
    if settings.positions:
        usable = settings.positions - settings.first_position
        check_length(entry, settings.seq_len, usable, settings.positions)

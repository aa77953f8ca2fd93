"""Reads the allocator's settings: `max_split_size_mb:128,expandable_segments:True`.

Which option exists since which torch, and what a value may be, as its parser says
(`c10/core/AllocatorConfig.cpp`, `c10/cuda/CUDAAllocatorConfig.cpp`, earlier
`CUDACachingAllocator.cpp`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from bsprof.errors import UsageError

MIB = 1 << 20
INTERVALS = 16
"""Entries of a list of divisions: sizes from 1 MiB to 64 GiB by powers of two."""

_SINCE: Mapping[str, tuple[int, int]] = {
    "max_split_size_mb": (1, 10),
    "roundup_power2_divisions": (1, 12),
    "garbage_collection_threshold": (1, 12),
    "backend": (2, 0),
    "expandable_segments": (2, 1),
    "max_non_split_rounding_mb": (2, 6),
    "per_process_memory_fraction": (2, 10),
    "large_segment_size_mb": (2, 11),
}
"""Options that decide sizes, and the torch that first had them."""

_WITHOUT_EFFECT = re.compile(
    "pinned_.*|release_lock_on_(cuda|hip)malloc|graph_capture_record_stream_reuse"
    "|throw_on_cudamalloc_oom"
)
"""Options that decide no size of device memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a setting says; None and empty where it says nothing."""

    large_segment_bytes: int | None = None
    divisions: tuple[int, ...] = ()
    max_split_bytes: int | None = None
    max_non_split_rounding_bytes: int | None = None
    garbage_collection_threshold: float | None = None
    memory_fraction: float | None = None
    expandable_segments: bool = False
    notes: tuple[str, ...] = ()


def chosen_setting(
    environment: Mapping[str, str], torch: tuple[int, int]
) -> tuple[str, tuple[str, ...]]:
    """The setting that torch reads, and notes; raises `UsageError` for a bypassed allocator.

    `PYTORCH_CUDA_ALLOC_CONF` is read first, whatever the documentation calls primary
    (`CUDAAllocatorConfig::instance` of torch 2.13 and 2.14).
    """
    if environment.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        raise UsageError(
            "cannot predict memory without the caching allocator",
            found="PYTORCH_NO_CUDA_MEMORY_CACHING is set, which bypasses it",
            next_step="unset it",
        )
    own = environment.get("PYTORCH_CUDA_ALLOC_CONF")
    general = environment.get("PYTORCH_ALLOC_CONF") if torch >= (2, 9) else None
    if own is not None and general is not None:
        return own, (
            "both PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF are set; torch reads the first",
        )
    return own if own is not None else general or "", ()


def read_settings(conf: str, torch: tuple[int, int]) -> Settings:
    """What `conf` says to this torch; raises `UsageError` for what it refuses."""
    settings = Settings()
    for item in _items(conf):
        name, colon, value = item.partition(":")
        if not colon or not value:
            raise _refused(conf, f"'{item}' is not option:value")
        if _WITHOUT_EFFECT.fullmatch(name):
            note = f"allocator option {name} does not change how much memory is used"
            settings = replace(settings, notes=(*settings.notes, note))
            continue
        since = _SINCE.get(name)
        if since is None:
            raise _refused(conf, f"no option '{name}'", f"known: {', '.join(sorted(_SINCE))}")
        if torch < since:
            raise _refused(
                conf,
                f"option {name} exists since torch {since[0]}.{since[1]}, this is "
                f"{torch[0]}.{torch[1]}",
            )
        settings = _with(settings, name, value, conf, torch)
    _check_sizes(settings, conf, torch)
    return settings


def _items(conf: str) -> list[str]:
    """Options with their values; commas inside brackets do not part them."""
    text = re.sub(r"\s", "", conf)
    return [item for item in re.findall(r"(?:\[[^\]]*\]?|[^,\[])+", text) if item]


def _with(settings: Settings, name: str, value: str, conf: str, torch: tuple[int, int]) -> Settings:
    if name == "backend":
        if value != "native":
            raise UsageError(
                f"cannot predict memory of the allocator '{value}'",
                found=f"allocator setting '{conf}'",
                next_step="leave backend out: only torch's own caching allocator is followed",
            )
        return settings
    if name == "expandable_segments":
        if value not in ("True", "False"):
            raise _refused(conf, f"expandable_segments is True or False, not '{value}'")
        return replace(settings, expandable_segments=value == "True")
    if name == "roundup_power2_divisions":
        return replace(settings, divisions=_divisions(value, conf, torch))
    if name == "garbage_collection_threshold":
        return replace(settings, garbage_collection_threshold=_share(name, value, conf, open_=True))
    if name == "per_process_memory_fraction":
        return replace(settings, memory_fraction=_share(name, value, conf, open_=False))
    size = _whole(name, value, conf) * MIB
    if name == "max_split_size_mb":
        return replace(settings, max_split_bytes=size)
    if name == "max_non_split_rounding_mb":
        return replace(settings, max_non_split_rounding_bytes=size)
    return replace(settings, large_segment_bytes=size)


def _check_sizes(settings: Settings, conf: str, torch: tuple[int, int]) -> None:
    """Sizes against each other, wherever in the setting they stand (probed on 2.13 and 2.14)."""
    large = settings.large_segment_bytes
    if large is not None and large <= 10 * MIB:
        raise _refused(conf, f"large_segment_size_mb is over 10, not {large // MIB}")
    lowest = large or 20 * MIB
    if torch < (2, 9):
        lowest += MIB
    split, rounding = settings.max_split_bytes, settings.max_non_split_rounding_bytes
    if split is not None and split < lowest:
        raise _refused(conf, f"max_split_size_mb is at least {lowest // MIB}, not {split // MIB}")
    if rounding is not None and rounding < lowest:
        raise _refused(
            conf,
            f"max_non_split_rounding_mb is at least {lowest // MIB}, not {rounding // MIB}",
        )


def _divisions(value: str, conf: str, torch: tuple[int, int]) -> tuple[int, ...]:
    """Steps by power of two from 1 MiB: one number for all, or `[256:1,512:2,>:4]`.

    In a list a size sets its own interval, the first one also all below it, and `>` all above
    the last one named; before torch 2.9 `>` overwrites that one too. Intervals that nothing
    names are not rounded.
    """
    if not value.startswith("["):
        return (_power_of_two(value, conf, zero=False),) * INTERVALS
    if not value.endswith("]"):
        raise _refused(conf, "a list of divisions ends with ']'")
    divisions = [0] * INTERVALS
    last = 0
    first = True
    for entry in filter(None, value[1:-1].split(",")):
        bound, _, text = entry.partition(":")
        steps = _power_of_two(text, conf, zero=True)
        if bound == ">":
            begin = last + 1 if torch >= (2, 9) else last
            divisions[begin:] = [steps] * (INTERVALS - begin)
            continue
        last = min(_power_of_two(bound, conf, zero=False).bit_length() - 1, INTERVALS - 1)
        if first:
            divisions[:last] = [steps] * last
            first = False
        divisions[last] = steps
    return tuple(divisions)


def _power_of_two(text: str, conf: str, *, zero: bool) -> int:
    number = _whole("roundup_power2_divisions", text, conf)
    if number & (number - 1) or (number == 0 and not zero):
        raise _refused(conf, f"roundup_power2_divisions takes powers of two, not {text}")
    return number


def _whole(name: str, value: str, conf: str) -> int:
    if not value.isdecimal():
        raise _refused(conf, f"{name} is a whole number, not '{value}'")
    return int(value)


def _share(name: str, value: str, conf: str, *, open_: bool) -> float:
    try:
        share = float(value)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1 or (open_ and share in (0, 1)):
        raise _refused(conf, f"{name} lies between 0 and 1, not '{value}'")
    return share


def _refused(conf: str, found: str, next_step: str = "") -> UsageError:
    return UsageError(
        f"cannot read the allocator setting '{conf}'", found=found, next_step=next_step
    )

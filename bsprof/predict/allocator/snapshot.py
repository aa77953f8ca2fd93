"""Memory snapshots as `torch.cuda.memory._snapshot()` has them, read from and written to JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsprof.errors import OutputError, ProfileFormatError, UsageError
from bsprof.predict.allocator.recording import Entry, RecordingAllocator

DUMP = "json.dump(torch.cuda.memory._snapshot(), open('snapshot.json', 'w'), default=str)"
"""What a program calls to write a snapshot that can be read here."""

_CONVERT = (
    "python -c \"import json, pickle; json.dump(pickle.load(open('snapshot.pickle', 'rb')), "
    "open('snapshot.json', 'w'), default=str)\""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBlock:
    """A block of the state in which a snapshot was taken; `state` as torch names it."""

    address: int
    size: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A recorded history, one list of entries for each device, and the state at its end.

    Attributes:
        histories: What the allocator did, in order, by device.
        blocks: Blocks of every segment at the end, by device.
        setting: Of the allocator, as in `PYTORCH_CUDA_ALLOC_CONF`; empty where it is not told.
    """

    histories: tuple[tuple[Entry, ...], ...]
    blocks: tuple[tuple[RecordedBlock, ...], ...]
    setting: str = ""


def read_snapshot(path: Path) -> Snapshot:
    """A snapshot from a JSON file.

    Raises:
        UsageError: A pickle, which is refused since reading one runs what it contains; or no
            such file.
        ProfileFormatError: Not a snapshot.
    """
    doing = f"cannot read the memory snapshot {path}"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(doing, found=str(error)) from error
    if content.startswith(b"\x80"):
        raise UsageError(
            doing,
            found="a pickle, and unpickling runs whatever it contains",
            next_step=f"write JSON instead: {DUMP}; or, if you trust the file: {_CONVERT}",
        )
    try:
        return snapshot_from(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProfileFormatError(
            doing,
            found=f"not what torch.cuda.memory._snapshot() returns: {error!r}",
            next_step=f"write one with {DUMP}",
        ) from error


def snapshot_from(data: Mapping[str, Any]) -> Snapshot:
    """A snapshot from what `_snapshot()` returns."""
    histories = tuple(tuple(_entries(trace)) for trace in data.get("device_traces", ()))
    blocks: dict[int, list[RecordedBlock]] = {}
    for segment in data["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            found = RecordedBlock(
                address=int(block.get("address", address)),
                size=int(block["size"]),
                # The name before torch 2.1.
                state=str(block["state"]).replace("pending", "awaiting"),
            )
            blocks.setdefault(segment.get("device", 0), []).append(found)
            address = found.address + found.size
    count = max([len(histories), *(device + 1 for device in blocks)])
    settings = data.get("allocator_settings") or {}
    return Snapshot(
        histories=histories + ((),) * (count - len(histories)),
        blocks=tuple(
            tuple(sorted(blocks.get(device, ()), key=lambda block: block.address))
            for device in range(count)
        ),
        setting=str(settings.get("PYTORCH_CUDA_ALLOC_CONF", "")),
    )


def _entries(trace: Sequence[Mapping[str, Any]]) -> Iterator[Entry]:
    for entry in trace:
        action = str(entry["action"])
        pool = entry.get("pool_id", entry.get("segment_pool_id")) or (0, 0)
        yield Entry(
            action=action,
            address=int(entry.get("addr", 0)),
            size=int(entry.get("size", 0)),
            stream=int(entry.get("stream", 0)),
            pool=(int(pool[0]), int(pool[1])),
        )


def write_snapshot(path: Path, allocator: RecordingAllocator) -> None:
    """Writes the history and state of an allocator so that torch's own pages can draw it.

    Those read pickles too; `torch.cuda._memory_viz` takes the JSON as it is loaded.

    Raises:
        OutputError: Cannot be written.
    """
    try:
        path.write_text(json.dumps(snapshot_of(allocator)), encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write the memory snapshot {path}", found=str(error)) from error


def snapshot_of(allocator: RecordingAllocator) -> dict[str, Any]:
    """What `_snapshot()` would return for this allocator."""
    rules = allocator.rules
    return {
        "segments": list(_segments(allocator)),
        "device_traces": [
            [_entry(number, entry) for number, entry in enumerate(allocator.history)]
        ],
        "allocator_settings": {
            "max_split_size": rules.max_split_bytes if rules.max_split_bytes is not None else -1,
            "garbage_collection_threshold": rules.garbage_collection_threshold or 0.0,
            "expandable_segments": rules.expandable_segments,
        },
        "external_annotations": [],
    }


def _entry(number: int, entry: Entry) -> dict[str, Any]:
    place = {"device_free": entry.address} if entry.action == "oom" else {"addr": entry.address}
    return {
        "action": entry.action,
        **place,
        "size": entry.size,
        "stream": entry.stream,
        "pool_id": list(entry.pool),
        "time_us": number,
        "compile_context": "N/A",
        "user_metadata": "",
        "frames": _frames(entry.label),
    }


def _frames(label: str) -> list[dict[str, Any]]:
    return [{"filename": "model", "line": 0, "name": label}] if label else []


def _segments(allocator: RecordingAllocator) -> Iterator[dict[str, Any]]:
    """Segments; of expandable ones each mapped stretch, as torch reports them."""
    blocks: list[dict[str, Any]] = []
    end = None
    segment: dict[str, Any] = {}
    for block in allocator.blocks():
        if not block.mapped:
            continue
        if block.before is None or block.address != end or not block.before.mapped:
            if blocks:
                yield _closed(segment, blocks)
            blocks = []
            segment = {
                "device": 0,
                "address": block.address,
                "stream": block.pool.stream,
                "segment_type": "small" if block.pool.is_small else "large",
                "segment_pool_id": [0, 0],
                "is_expandable": block.expandable is not None,
                "frames": [],
            }
        held = not block.key
        blocks.append(
            {
                "address": block.address,
                "size": block.size,
                "requested_size": block.requested if held else 0,
                "state": block.state,
                "frames": _frames(allocator.labels.get(block.address, "")) if held else [],
            }
        )
        end = block.address + block.size
    if blocks:
        yield _closed(segment, blocks)


def _closed(segment: dict[str, Any], blocks: list[dict[str, Any]]) -> dict[str, Any]:
    def total(*states: str, field: str = "size") -> int:
        return sum(block[field] for block in blocks if not states or block["state"] in states)

    active = ("active_allocated", "active_awaiting_free")
    return {
        **segment,
        "total_size": total(),
        "allocated_size": total("active_allocated"),
        "active_size": total(*active),
        "requested_size": total(*active, field="requested_size"),
        "blocks": blocks,
    }

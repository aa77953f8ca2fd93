"""A replay written as a snapshot: read back, replayed, and taken by torch's own viewer."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from test_replay import MIB, some_run, training

from bsprof.errors import OutputError
from bsprof.predict.allocator import (
    AllocatorRules,
    RecordingAllocator,
    Schedule,
    read_snapshot,
    record,
    replay,
    replay_snapshot,
    write_snapshot,
)
from bsprof.predict.allocator.expandable import UNLIMITED_DEVICE_BYTES

RULES = (AllocatorRules(), AllocatorRules(expandable_segments=True))


@pytest.fixture(scope="module")
def viewer():
    """`torch.cuda._memory_viz`, without loading torch: it needs nothing of it."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent / "cuda" / "_memory_viz.py"
    own = importlib.util.spec_from_file_location("memory_viz", path)
    assert own is not None
    assert own.loader is not None
    module = importlib.util.module_from_spec(own)
    own.loader.exec_module(module)
    return module


def written(tmp_path, stream, inserted, rules, capacity=None):
    found, allocator = record(Schedule.of(stream, inserted), rules, capacity)
    assert found == replay(stream, inserted, rules, capacity)
    path = tmp_path / "snapshot.json"
    write_snapshot(path, allocator)
    return path, found, allocator


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("share", [None, 0.97, 0.6])
def test_what_is_written_is_read_and_followed_exactly(tmp_path, rules, share):
    stream, inserted = some_run(4)
    peak = replay(stream, inserted, rules, None).peak_allocated_bytes
    capacity = None if share is None else int(share * peak)
    path, found, _ = written(tmp_path, stream, inserted, rules, capacity)
    device = UNLIMITED_DEVICE_BYTES if capacity is None else capacity
    again = replay_snapshot(read_snapshot(path), rules, device_bytes=device)
    assert again.difference is None
    assert again.peak_allocated_bytes == found.peak_allocated_bytes
    assert again.peak_reserved_bytes == found.peak_reserved_bytes
    assert again.ooms == (found.refusal is not None)


@pytest.mark.parametrize("rules", RULES)
def test_the_viewer_of_torch_takes_it(tmp_path, viewer, rules):
    stream, inserted = some_run(5)
    path, _, allocator = written(tmp_path, stream, inserted, rules)
    data = json.loads(path.read_text())
    summary = viewer.segsum(data)  # checks that blocks add up to their segments
    assert f"segments: {len(data['segments'])}" in summary
    assert sum(s["total_size"] for s in data["segments"]) == allocator.reserved_bytes
    assert sum(s["allocated_size"] for s in data["segments"]) == allocator.allocated_bytes
    assert "cudaMalloc" in viewer.trace(data) or rules.expandable_segments
    lines = []
    viewer.segments(data, format_flamegraph=lines.append)
    viewer.memory(data, format_flamegraph=lines.append)
    assert all("model:0:m" in text for text in lines)
    assert "<html>" in viewer.trace_plot(data).lower() or "<!doctype" in viewer.trace_plot(data)
    assert viewer.segment_plot(data)


def test_a_refusal_is_in_the_history(tmp_path):
    path, found, _ = written(tmp_path, training(), (), AllocatorRules(), 200 * MIB)
    last = json.loads(path.read_text())["device_traces"][0][-1]
    assert found.refusal is not None
    assert (last["action"], last["size"]) == ("oom", 41 * MIB + 512)
    assert last["device_free"] == found.refusal.free_bytes
    assert last["frames"] == [{"filename": "model", "line": 0, "name": "net.1"}]


def test_waiting_blocks_are_written_as_such(tmp_path):
    allocator = RecordingAllocator(AllocatorRules())
    allocator.free_later(allocator.allocate(5 * MIB))
    done = allocator.allocate(3 * MIB)
    allocator.free_later(done)
    allocator.complete(done)
    path = tmp_path / "s.json"
    write_snapshot(path, allocator)
    (segment,) = json.loads(path.read_text())["segments"]
    assert (segment["allocated_size"], segment["active_size"]) == (0, 5 * MIB)
    states = [block["state"] for block in segment["blocks"]]
    assert states == ["active_awaiting_free", "inactive"]
    assert replay_snapshot(read_snapshot(path), AllocatorRules()).is_exact


def test_it_cannot_be_written(tmp_path):
    with pytest.raises(OutputError, match="memory snapshot"):
        write_snapshot(tmp_path / "no" / "s.json", RecordingAllocator(AllocatorRules()))

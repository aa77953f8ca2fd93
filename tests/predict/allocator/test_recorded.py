"""Recorded histories are followed to the byte; what is not a history is refused."""

from __future__ import annotations

import json
import pickle
import random

import pytest
from literal_allocator import MIB, Literal, OutOfMemory
from test_against_literal import DEVICE, SETTINGS, scattered, some_size

from bsprof.errors import ProfileFormatError, UsageError
from bsprof.predict.allocator import AllocatorRules
from bsprof.predict.allocator.recorded import replay_snapshot
from bsprof.predict.allocator.snapshot import read_snapshot, snapshot_from
from bsprof.predict.target import Software


def recorded(name, seed, steps=250):
    """A random run of the literal allocator, and what it recorded."""
    _, options = SETTINGS[name]
    literal = Literal(DEVICE, scattered(seed), **options)
    rng = random.Random(seed)
    held, waiting = [], []
    # When a collection looks at blocks that a flush waits for is not told by a record.
    waits = "threshold" not in options
    for _ in range(steps):
        choice = rng.random()
        if choice < 0.52 or not held:
            try:
                held.append(literal.allocate(some_size(rng), rng.choice([0, 0, 0, 7])))
            except OutOfMemory:
                for _ in range(len(held) // 2):
                    literal.free(held.pop(rng.randrange(len(held))))
            waiting = [taken for taken in waiting if taken.waiting]
        elif choice < 0.92 or not waits:
            literal.free(held.pop(rng.randrange(len(held))))
        elif choice < 0.97:
            waiting.append(held.pop(rng.randrange(len(held))))
            literal.free_later(waiting[-1])
        elif waiting:
            literal.give_back(waiting.pop(rng.randrange(len(waiting))))
        elif choice > 0.99 and "max_split" not in options:
            literal.empty_cache()
            waiting.clear()
    return literal


def as_snapshot(literal):
    segments = []
    for segment in literal.segments:
        runs = [run for run in segment.mapped_runs() if run[1] > run[0]]
        for begin, end in runs:
            blocks = [
                {
                    "address": start,
                    "size": size,
                    "state": {
                        "free": "inactive",
                        "taken": "active_allocated",
                        "waiting": "active_awaiting_free",
                    }[state],
                }
                for start, size, state in literal.layout()
                if begin <= start < end
            ]
            segments.append({"address": begin, "stream": segment.stream, "blocks": blocks})
    return {"segments": segments, "device_traces": [literal.history]}


def rules_of(name):
    return AllocatorRules.of(Software(torch=(2, 14)), SETTINGS[name][0])


@pytest.mark.parametrize("name", SETTINGS)
def test_a_history_made_by_the_rules_is_followed_exactly(name):
    ooms = segments = 0
    for seed in range(2):
        literal = recorded(name, seed)
        snapshot = snapshot_from(json.loads(json.dumps(as_snapshot(literal))))
        found = replay_snapshot(snapshot, rules_of(name), device_bytes=DEVICE)
        assert found.difference is None
        assert found.is_exact
        assert found.ooms == literal.ooms
        changes = [e for e in literal.history if e["action"].startswith("segment_")]
        assert found.segments == len(changes)
        ooms += found.ooms
        segments += found.segments
    assert ooms > 0
    assert segments > 50


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("seed", range(50, 54))
def test_long_histories_are_followed_exactly(name, seed):
    snapshot = snapshot_from(as_snapshot(recorded(name, seed, steps=1500)))
    assert replay_snapshot(snapshot, rules_of(name), device_bytes=DEVICE).difference is None


def entry_of(history, action, number=0):
    return [place for place, entry in enumerate(history) if entry["action"] == action][number]


def test_the_first_difference_is_named():
    data = as_snapshot(recorded("plain", seed=0))
    history = data["device_traces"][0]
    place = entry_of(history, "segment_alloc", 5)
    history[place]["size"] += 2 * MIB
    found = replay_snapshot(snapshot_from(data), rules_of("plain"))
    assert found.difference is not None
    assert found.difference.entry > place
    assert found.difference.entry < place + 3
    assert "segment_alloc" in found.difference.recorded


def test_other_rules_do_not_pass_for_these():
    snapshot = snapshot_from(as_snapshot(recorded("divisions", seed=0)))
    assert not replay_snapshot(snapshot, rules_of("plain")).is_exact
    expandable = replay_snapshot(snapshot, rules_of("expandable"), device_bytes=DEVICE)
    assert not expandable.is_exact


def test_a_flush_that_spares_a_segment_is_a_difference():
    literal = Literal(100 * MIB, scattered(0))
    held = [literal.allocate(size * MIB) for size in (30, 40)]
    for taken in held:
        literal.free(taken)
    literal.allocate(80 * MIB)
    data = as_snapshot(literal)
    snapshot = snapshot_from(data)
    assert replay_snapshot(snapshot, rules_of("plain")).is_exact
    history = data["device_traces"][0]
    del history[entry_of(history, "segment_free")]
    difference = replay_snapshot(snapshot_from(data), rules_of("plain")).difference
    assert difference is not None
    assert "segment_free" in difference.replayed


def test_the_state_at_the_end_is_compared():
    data = as_snapshot(recorded("plain", seed=1))
    data["segments"][0]["blocks"][0]["size"] += 512
    difference = replay_snapshot(snapshot_from(data), rules_of("plain")).difference
    assert difference is not None
    assert difference.entry == len(data["device_traces"][0])


@pytest.mark.parametrize("lost", [0.2, 0.6])
def test_a_ring_that_lost_its_beginning_is_told(lost):
    data = as_snapshot(recorded("plain", seed=2))
    history = data["device_traces"][0]
    data["device_traces"][0] = history[int(lost * len(history)) :]
    with pytest.raises(UsageError, match="does not begin with an empty allocator") as caught:
        replay_snapshot(snapshot_from(data), rules_of("plain"))
    assert "max_entries" in caught.value.next_step


def test_graph_pools_are_left_out_and_said_so():
    literal = recorded("plain", seed=3, steps=50)
    data = as_snapshot(literal)
    data["device_traces"][0].insert(
        0, {"action": "alloc", "addr": 1, "size": 7, "stream": 0, "pool_id": [0, 1]}
    )
    found = replay_snapshot(snapshot_from(data), rules_of("plain"))
    assert found.is_exact
    assert found.notes == ("1 entries of other memory pools (CUDA graphs) left out",)


@pytest.mark.parametrize("name", ["expandable", "fraction"])
def test_rules_that_depend_on_the_device_need_its_memory(name):
    with pytest.raises(UsageError, match="memory of the device"):
        replay_snapshot(snapshot_from(as_snapshot(recorded(name, 0))), rules_of(name))


def test_there_is_no_such_device():
    with pytest.raises(UsageError, match="device 1"):
        replay_snapshot(
            snapshot_from(as_snapshot(recorded("plain", 0))), rules_of("plain"), device=1
        )


def test_pickles_are_refused_with_the_way_out(tmp_path):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": []}))
    with pytest.raises(UsageError, match=r"json\.dump") as caught:
        read_snapshot(path)
    assert "pickle" in caught.value.found


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"segments": 3}', "nothing", '{"segments": [{}]}']
)
def test_what_is_not_a_snapshot_is_refused(tmp_path, content):
    path = tmp_path / "snapshot.json"
    path.write_text(content)
    with pytest.raises(ProfileFormatError, match="memory snapshot"):
        read_snapshot(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="memory snapshot"):
        read_snapshot(tmp_path / "none.json")

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bsprof.errors import OutputError, ProfileFormatError, ProfileNotFound, ProfileTooNew
from bsprof.records import SCHEMA_VERSION, Profile, WorkloadSpec
from bsprof.store import atomic_write, dumps, load, loads, save


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_profiles_round_trip_through_a_file(tmp_path_factory, record_strategy, data):
    profile = data.draw(record_strategy(Profile))
    path = tmp_path_factory.mktemp("store") / "p.json"
    save(profile, path)
    assert load(path) == profile
    assert path.read_text() == dumps(profile)


def test_the_text_has_sorted_keys_and_is_the_same_every_time(make_profile):
    text = dumps(make_profile())
    assert text == dumps(make_profile())
    assert text.endswith("}\n")
    document = json.loads(text)
    assert list(document) == sorted(document)
    assert document["schema"] == SCHEMA_VERSION


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe\x00", "not text in UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "no field schema"),
        (b"{}", "no field schema"),
        (b'{"schema": "1"}', "format version '1'"),
        (b'{"schema": 0}', "format version 0"),
        (b'{"schema": true}', "format version True"),
        (b'{"schema": 1}', "missing field Profile."),
        (b'{"schema": 1, "x": NaN}', "NaN is not a number that JSON knows"),
    ],
)
def test_a_broken_file_is_reported_with_what_is_wrong(tmp_path, content, found):
    path = tmp_path / "p.json"
    path.write_bytes(content)
    with pytest.raises(ProfileFormatError) as caught:
        load(path)
    assert caught.value.doing == f"cannot load profile {path}"
    assert found in caught.value.found
    assert "bsprof profiles" in caught.value.next_step
    assert not isinstance(caught.value, ProfileTooNew)


def test_a_wrong_field_is_named(make_profile):
    document = json.loads(dumps(make_profile()))
    document["points"][0]["status"] = "fine"
    with pytest.raises(ProfileFormatError) as caught:
        loads(json.dumps(document).encode(), "p.json")
    assert "Profile.points[0].status should be one of ok, oom" in caught.value.found
    assert caught.value.found.endswith("not 'fine'")


def test_points_out_of_order_are_refused(make_profile, make_point):
    profile = make_profile(points=(make_point(4, 0.1, 10), make_point(2, 0.1, 10)))
    with pytest.raises(ProfileFormatError, match="cannot load") as caught:
        loads(dumps(profile).encode(), "p.json")
    assert caught.value.found == "points out of order: size 2 follows 4"


def test_a_newer_format_is_refused_with_advice(make_profile, tmp_path):
    document = json.loads(dumps(make_profile())) | {"schema": SCHEMA_VERSION + 1, "new": 1}
    path = tmp_path / "p.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ProfileTooNew) as caught:
        load(path)
    assert f"format version {SCHEMA_VERSION + 1}" in caught.value.found
    assert f"up to version {SCHEMA_VERSION}" in caught.value.found
    assert "upgrade bsprof" in caught.value.next_step


def test_a_missing_file_is_not_found(tmp_path):
    with pytest.raises(ProfileNotFound, match="cannot load profile"):
        load(tmp_path / "none.json")


def test_a_folder_is_no_profile(tmp_path):
    with pytest.raises(ProfileFormatError) as caught:
        load(tmp_path)
    assert caught.value.found == "Is a directory"


def test_writing_makes_folders_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "a" / "b" / "c.txt"
    atomic_write(path, b"one")
    atomic_write(path, b"two")
    assert path.read_bytes() == b"two"
    assert [p.name for p in path.parent.iterdir()] == ["c.txt"]


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError) as caught:
        atomic_write(tmp_path / "file" / "p.json", b"")
    assert caught.value.doing == f"cannot write {tmp_path / 'file' / 'p.json'}"
    assert caught.value.found
    with pytest.raises(OutputError, match="cannot write /proc/none"):
        atomic_write(__import__("pathlib").Path("/proc/none.json"), b"")


def test_an_interrupted_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "p.json"
    atomic_write(path, b"old")

    def interrupt(_descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        atomic_write(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["p.json"]


def test_kill_while_saving_leaves_a_readable_profile(tmp_path, make_profile):
    path = tmp_path / "p.json"
    save(make_profile(), path)
    script = textwrap.dedent("""
        import dataclasses, sys
        from pathlib import Path
        from bsprof.store import load, save
        path = Path(sys.argv[1])
        profile = load(path)
        print("ready", flush=True)
        for n in range(10**9):
            save(dataclasses.replace(profile, duration_s=float(n)), path)
    """)
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        before = load(path)
        for _ in range(200):
            load(path)
        process.send_signal(signal.SIGKILL)
    assert load(path).points == before.points


def test_a_size_without_samples_is_refused(make_profile):
    document = json.loads(dumps(make_profile()))
    document["points"][0]["micro_batch_size"] = 0
    with pytest.raises(ProfileFormatError) as caught:
        loads(json.dumps(document).encode(), "p.json")
    assert "Profile.points[0] is not valid: a micro-batch has at least one" in caught.value.found


def test_a_number_that_is_not_finite_is_named_not_saved(make_profile, tmp_path):
    profile = make_profile(
        workload=WorkloadSpec(model="mlp", clip_norm=math.inf), duration_s=math.nan
    )
    with pytest.raises(OutputError, match="cannot write the profile of mlp") as caught:
        save(profile, tmp_path / "p.json")
    assert caught.value.found == "Profile.workload.clip_norm is inf, Profile.duration_s is nan"
    assert caught.value.next_step
    assert not (tmp_path / "p.json").exists()


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "there").mkdir()
    real, link, dangling = tmp_path / "there" / "real", tmp_path / "link", tmp_path / "dangling"
    real.write_bytes(b"old")
    link.symlink_to(real)
    dangling.symlink_to(tmp_path / "there" / "later")
    for path in (link, dangling):
        atomic_write(path, b"new")
        assert path.is_symlink()
        assert path.read_bytes() == b"new"
    assert real.read_bytes() == b"new"
    assert sorted(p.name for p in (tmp_path / "there").iterdir()) == ["later", "real"]


def test_what_is_no_regular_file_is_written_into(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    atomic_write(pipe, b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()
    null = tmp_path / "null"
    null.symlink_to(os.devnull)  # never the machine's own, should this fail
    atomic_write(null, b"gone")
    assert null.is_symlink()
    assert null.is_char_device()

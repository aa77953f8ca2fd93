from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from bsprof.errors import ProfileFormatError, ProfileNotFound
from bsprof.records import DeviceSnapshot, WorkloadSpec
from bsprof.store import data_folder, find, listing, newest, profile_path, read, save, store_folder
from bsprof.store.folder import device_slug, matches, model_slug, slug


@pytest.fixture
def store(tmp_path, make_profile):
    """Three profiles of two models on two devices, a broken one and hidden files."""
    folder = tmp_path / "profiles"
    gpu = DeviceSnapshot(kind="cuda", index=1, name="NVIDIA H200", capacity_bytes=9, usable_bytes=9)
    for changes in (
        {"created_at": "2026-01-14T09:00:00+00:00"},
        {"created_at": "2026-01-15T09:00:00+00:00", "workload": WorkloadSpec(model="mlp")},
        {"created_at": "2026-01-13T09:00:00+00:00", "device": gpu},
    ):
        profile = make_profile(**changes)
        save(profile, profile_path(profile, folder))
    (folder / ".peaks").mkdir()
    (folder / ".peaks" / "abc.json").write_text("{}")
    return folder


CPU = "cpu-test-3000"


def test_the_store_is_beside_us_or_where_the_environment_says(monkeypatch):
    assert store_folder() == Path("profiles")
    monkeypatch.setenv("BSPROF_STORE", "/somewhere/else")
    assert store_folder() == Path("/somewhere/else")
    monkeypatch.setenv("BSPROF_STORE", "")
    assert store_folder() == Path("profiles")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("GPT Tiny", "gpt-tiny"), ("a//b", "a-b"), ("--", "unnamed"), ("É1", "1")],
)
def test_slug(text, expected):
    assert slug(text) == expected


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("cpu", "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "cpu-intel-xeon-platinum-8481c"),
        ("cpu", "AMD EPYC 7B13 Processor", "cpu-amd-epyc-7b13"),
        ("cpu", "", "cpu-unnamed"),
        ("cuda", "NVIDIA H200", "nvidia-h200"),
        ("mps", "Apple M3", "mps-apple-m3"),
    ],
)
def test_device_slug(kind, name, expected):
    device = DeviceSnapshot(kind=kind, name=name, capacity_bytes=1, usable_bytes=1)
    assert device_slug(device) == expected


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-tiny", "gpt-tiny"),
        ("train.py:make", "train-make"),
        ("some/where/train.py:make_it", "train-make-it"),
        ("package.module:factory", "package-module-factory"),
    ],
)
def test_model_slug(model, expected):
    assert model_slug(model) == expected


def test_a_sweep_always_saves_to_the_same_file(make_profile):
    profile = make_profile()
    path = profile_path(profile, Path("profiles"))
    assert path == Path(f"profiles/{CPU}/gpt-tiny/20260114T090000Z.json")
    later = dataclasses.replace(profile, complete=False, duration_s=1e9, points=())
    assert profile_path(later, Path("profiles")) == path


def test_two_sweeps_within_a_second_do_not_share_a_file(make_profile):
    one = make_profile(created_at="2026-01-14T09:00:00.000001+00:00")
    two = make_profile(created_at="2026-01-14T09:00:00.000002+00:00")
    assert profile_path(one, Path()) != profile_path(two, Path())


def test_listing_is_newest_first_and_shows_the_broken(store, tmp_path):
    broken = store / CPU / "mlp" / "20260116T090000Z.json"
    broken.write_text("{")
    entries = listing(store, reference=tmp_path / "none")
    assert [entry.name for entry in entries] == [
        f"{CPU}/mlp/20260116T090000Z",
        f"{CPU}/mlp/20260115T090000Z",
        f"{CPU}/gpt-tiny/20260114T090000Z",
        "nvidia-h200/gpt-tiny/20260113T090000Z",
    ]
    assert [entry.problem is None for entry in entries] == [False, True, True, True]
    assert entries[0].profile is None


def test_an_empty_store_lists_nothing(tmp_path):
    assert listing(tmp_path / "none", reference=tmp_path / "none") == []


def test_reference_profiles_come_last_and_only_by_name(store, tmp_path, make_profile):
    reference = tmp_path / "reference"
    save(make_profile(), reference / "cpu" / "gpt.json")
    save(make_profile(created_at="2030-01-01T00:00:00Z"), store / "reference" / "x.json")
    assert listing(store, reference=reference)[-1].name == "reference/cpu/gpt"
    assert newest(store).name == f"{CPU}/mlp/20260115T090000Z"
    name, path = find("reference/cpu/gpt", store, reference=reference)
    assert (name, path) == ("reference/cpu/gpt", reference / "cpu" / "gpt.json")


def test_newest_of_a_model_or_device(store):
    assert newest(store).name == f"{CPU}/mlp/20260115T090000Z"
    assert newest(store, model="gpt-tiny").name == f"{CPU}/gpt-tiny/20260114T090000Z"
    assert newest(store, device="cuda").name == "nvidia-h200/gpt-tiny/20260113T090000Z"
    assert newest(store, device="cuda:1").profile is not None
    assert newest(store, device="auto").name == newest(store).name
    with pytest.raises(ProfileNotFound) as caught:
        newest(store, model="mlp", device="cuda")
    assert caught.value.doing == f"no profile of mlp on cuda in the store {store}"
    assert "3 of other models" in caught.value.found


def test_newest_in_an_empty_store(tmp_path):
    with pytest.raises(ProfileNotFound) as caught:
        newest(tmp_path)
    assert caught.value.doing == f"no profile in the store {tmp_path}"
    assert "bsprof sweep" in caught.value.next_step


def test_newest_that_is_broken_is_told_not_skipped(store):
    (store / "20270101T000000Z.json").write_text("{")
    with pytest.raises(ProfileFormatError, match="20270101T000000Z"):
        newest(store)


@pytest.mark.parametrize(
    ("device", "expected"),
    [("cuda", True), ("cuda:1", True), ("cuda:0", False), ("cpu", False), ("h200", True)],
)
def test_matching_a_device(make_profile, device, expected):
    gpu = DeviceSnapshot(kind="cuda", index=1, name="NVIDIA H200", capacity_bytes=9, usable_bytes=9)
    assert matches(make_profile(device=gpu), None, device) is expected


def test_files_of_other_names_are_as_old_as_they_were_written(store, make_profile):
    save(make_profile(), store / "mine.json")
    os.utime(store / "mine.json", (4e9, 4e9))
    assert newest(store).name == "mine"
    os.utime(store / "mine.json", (1e9, 1e9))
    assert newest(store).name != "mine"


def test_find_by_file_name_and_start_of_name(store):
    path = store / CPU / "gpt-tiny" / "20260114T090000Z.json"
    assert find(str(path), store) == (str(path), path)
    for wanted in (
        f"{CPU}/gpt-tiny/20260114T090000Z",
        f"{CPU}/gpt-tiny",
        f"{CPU}/gpt-tiny/",
        f"{CPU}/g",
    ):
        assert find(wanted, store) == (f"{CPU}/gpt-tiny/20260114T090000Z", path)
    assert find("cpu", store)[0] == f"{CPU}/mlp/20260115T090000Z"
    assert read("nvidia-h200", store).profile is not None


def test_find_offers_near_names(store):
    with pytest.raises(ProfileNotFound) as caught:
        find("cpu-test-3000/gpt-tony/20260114T090000Z", store)
    assert f"near: {CPU}/gpt-tiny/20260114T090000Z" in caught.value.found
    with pytest.raises(ProfileNotFound, match="no profile zzz"):
        find("zzz", store)
    with pytest.raises(ProfileNotFound):
        find("", store)


def test_a_checkouts_own_data_wins_over_the_packaged(tmp_path):
    package = tmp_path / "bsprof"
    assert data_folder("calibration_data", package=package, checkout=tmp_path) == (
        package / "_data" / "calibration_data"
    )
    (tmp_path / "calibration_data").mkdir()
    assert data_folder("calibration_data", package=package, checkout=tmp_path).parent != tmp_path
    (tmp_path / "pyproject.toml").write_text("")
    assert data_folder("calibration_data", package=package, checkout=tmp_path).parent == tmp_path


def test_a_link_to_nothing_is_listed_last_as_unreadable(store, tmp_path):
    (store / "x.json").symlink_to(tmp_path / "none.json")
    entries = listing(store, reference=tmp_path / "none")
    assert entries[-1].name == "x"
    assert entries[-1].problem is not None
    assert newest(store).name == f"{CPU}/mlp/20260115T090000Z"

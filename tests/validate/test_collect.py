"""Rows of published files as cases, on files written here."""

from __future__ import annotations

import csv

import pytest

from bsprof.errors import UsageError
from bsprof.records import Precision
from bsprof.validate.cases import Case, Skipped
from bsprof.validate.cited import cited
from bsprof.validate.collect import collect, sample
from bsprof.validate.rows import Row
from bsprof.validate.sources import gpumemnet, timm_3090

TIMM = {
    "model": "resnet50",
    "micro_batch": "192",
    "image_size": "224",
    "framework": "pytorch+timm (NHWC)",
    "framework_version": "1.12 cu11.3",
}
MEMORY = {"model": "resnet50", "micro_batch": "8", "peak_mem_gib": "3.5", "oom": "0"}


def write(folder, name, rows):
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with (folder / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def test_a_bracket_and_the_settings_of_the_benchmark():
    case = timm_3090.read(Row("f.csv:2", TIMM))
    assert isinstance(case, Case)
    assert case.bracket is not None
    assert (case.bracket.fits, case.bracket.fails) == (192, 256)
    assert case.spec.channels_last
    assert case.spec.precision is Precision.AMP_FP16
    assert case.software.torch == (1, 12)
    assert not case.protocol.set_to_none


def test_the_first_size_of_the_search_has_no_upper_end():
    case = timm_3090.read(Row("f.csv:2", {**TIMM, "micro_batch": "512"}))
    assert isinstance(case, Case)
    assert case.bracket is not None
    assert case.bracket.fails is None


@pytest.mark.parametrize(
    "change", [{"micro_batch": "100"}, {"image_size": ""}, {"model": "ecaresnext50t_32x4d"}]
)
def test_rows_that_are_left_out_say_why(change):
    skipped = timm_3090.read(Row("f.csv:2", {**TIMM, **change}))
    assert isinstance(skipped, Skipped)
    assert skipped.reason


def test_failed_runs_are_not_scored():
    skipped = gpumemnet.read(Row("f.csv:2", {**MEMORY, "oom": "suspect"}))
    assert isinstance(skipped, Skipped)
    assert not skipped.counts


def test_models_whose_memory_falls_are_left_out(tmp_path):
    rows = [
        {**MEMORY, "micro_batch": str(size), "peak_mem_gib": str(gib)}
        for size, gib in ((8, 3.0), (16, 4.0), (32, 3.5))
    ]
    write(tmp_path, gpumemnet.FILE, [*rows, {**MEMORY, "model": "vit_tiny_patch16_224"}])
    found = collect(tmp_path)
    assert {case.model for case in found.cases} == {"vit_tiny_patch16_224"}
    assert len(found.skipped) == 3


def test_a_folder_without_measurements_is_told(tmp_path):
    with pytest.raises(UsageError, match="no measurements"):
        collect(tmp_path)


def test_an_unknown_source_is_told(tmp_path):
    with pytest.raises(UsageError, match="unknown source"):
        collect(tmp_path, source="nobody")


def test_a_sample_takes_families_in_turn_and_is_always_the_same(tmp_path):
    models = [*(f"resnet{n}" for n in (18, 26, 34, 50, 101)), "vit_tiny_patch16_224", "xcit_nano"]
    write(tmp_path, timm_3090.FILE, [{**TIMM, "model": model} for model in models])
    cases = collect(tmp_path).cases
    drawn = sample(cases, 3)
    assert drawn == sample(list(reversed(cases)), 3)
    assert {"vit_tiny_patch16_224", "xcit_nano"} < drawn
    limited = collect(tmp_path, limit=3)
    assert {case.model for case in limited.cases} == drawn
    assert limited.sampled_from == 7


def test_every_cited_figure_is_a_case_with_its_source():
    found = cited()
    assert len(found.cases) >= 20
    for case in found.cases:
        assert (case.measured is None) != (case.bracket is None)
        place, found_factory, _ = case.spec.model.partition(":")
        own = place.startswith("bsprof.validate.models.") and "huggingface" not in place
        assert own or not found_factory  # no further package is needed to build it
    assert set(found.assumptions) == {case.source for case in found.cases}

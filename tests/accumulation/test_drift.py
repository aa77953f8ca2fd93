from __future__ import annotations

import math
import random

import pytest

from bsprof.accumulation.drift import Drift, Observed


def feed(drift, values, *, first=1, **more):
    notes = []
    for place, (loss, norm) in enumerate(values):
        seen = Observed(step=first + place, loss=loss, gradient_norm=norm, **more)
        notes += drift.see(seen)
    return notes


def steady(updates, seed=0):
    rng = random.Random(seed)
    return [
        (2.0 * math.exp(-i / 500) + rng.gauss(0, 0.05), math.exp(rng.gauss(0, 0.2)))
        for i in range(updates)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_a_steady_run_stays_silent(seed):
    drift = Drift(50)
    assert feed(drift, steady(1000, seed)) == []
    assert drift.last_good_step == 1000


def test_one_outlier_is_no_drift():
    drift = Drift(50)
    assert feed(drift, [*steady(60), (2.0, 40.0), *steady(20, seed=1)]) == []
    assert drift.last_good_step == 81


def test_a_norm_that_leaves_its_range_is_told_once_with_the_last_good_step():
    drift = Drift(50)
    feed(drift, steady(60))
    notes = feed(drift, [(1.8, 9.0 + i) for i in range(10)], first=61)
    assert [note.code for note in notes] == ["gradient-norm-drift"]
    assert "at update 61" in notes[0].message
    assert drift.last_good_step == 60


def test_a_rising_loss_is_told():
    drift = Drift(50)
    feed(drift, steady(60))
    notes = feed(drift, [(3.0 + i / 10, 1.0) for i in range(5)], first=61)
    assert [note.code for note in notes] == ["loss-drift"]


def test_what_stays_for_a_whole_window_has_become_usual():
    drift = Drift(20)
    feed(drift, steady(60))
    assert len(feed(drift, [(1.8, 9.0 + i % 3) for i in range(60)], first=61)) == 1
    assert drift.last_good_step == 120


def test_a_number_that_is_not_finite_is_told_at_once_unless_the_step_was_skipped():
    drift = Drift(50)
    feed(drift, steady(3))
    assert feed(drift, [(math.inf, 1.0)], first=4, stepped=False) == []
    [note] = feed(drift, [(math.nan, math.nan)] * 3, first=5)
    assert note.code == "not-finite"
    assert drift.last_good_step == 3


def test_a_noise_scale_that_grows_fourfold_is_told():
    drift = Drift(50)
    # The first window's running means are too young to be compared.
    notes = feed(drift, steady(40), noise_scale=900.0)
    notes += feed(drift, steady(40), first=41, noise_scale=100.0)
    notes += feed(drift, steady(20), first=81, noise_scale=450.0)
    assert [note.code for note in notes] == ["noise-scale-drift"]
    assert "from 100 samples at update 51 to 450" in notes[0].message

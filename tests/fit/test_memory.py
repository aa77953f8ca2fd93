from __future__ import annotations

import itertools
import random
import statistics
from collections import defaultdict
from collections.abc import Sequence

import pytest
from fit_points import MIB, memory_point, public_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from bsprof.errors import FitError
from bsprof.fit.memory import (
    LARGEST_EXTRAPOLATION,
    fit_memory,
    largest_that_fits,
    predict_memory,
)
from bsprof.records import Phase, Point, PointStatus, Quantity

FB, ACC, OPT = Phase.FORWARD_BACKWARD, Phase.ACCUMULATION, Phase.OPTIMIZER_STEP

# Data segment of a CPU process (glibc malloc) while training a small GPT, MiB by micro-batch
# size; own measurement, baseline 317 MiB.
CPU_SWEEP = {1: 388, 2: 403, 4: 435, 8: 498, 16: 601, 32: 866, 64: 1296, 72: 1344, 76: 1494,
             80: 1446, 84: 1565}  # fmt: skip


def affine(sizes: Sequence[int], base: float = 500.0, slope: float = 14.2) -> list[Point]:
    return [memory_point(b, {FB: base + slope * b, OPT: base * 0.9}) for b in sizes]


def largest(points: Sequence[Point], usable_mib: float, **known: int | None) -> Quantity | None:
    facts: dict[str, int | None] = {"known_ok": 1, "known_too_big": None, "cap": None, **known}
    return largest_that_fits(fit_memory(points), usable_mib * MIB, **facts)  # type: ignore[arg-type]


def test_clean_lines_are_recovered_and_inverted_exactly() -> None:
    fit = fit_memory(affine([1, 2, 4, 8, 16, 32]))
    growing = next(line for line in fit.lines if line.phase is FB)
    assert growing.base_bytes == pytest.approx(500 * MIB, rel=1e-6)
    assert growing.slope_bytes == pytest.approx(14.2 * MIB, rel=1e-6)
    assert fit.slope_visible
    answer = largest_that_fits(
        fit, (500 + 14.2 * 96) * MIB, known_ok=32, known_too_big=None, cap=None
    )
    assert answer is not None
    assert answer.value == 96
    assert answer.relative_width < 0.06
    near = largest_that_fits(
        fit, (500 + 14.2 * 40) * MIB, known_ok=32, known_too_big=None, cap=None
    )
    assert near is not None
    assert near.value == 40
    assert near.relative_width <= 0.05


def test_prediction_is_labelled_outside_the_measured_sizes() -> None:
    fit = fit_memory(affine([2, 4, 8, 16]))
    inside, extrapolated = predict_memory(fit, 6)
    assert not extrapolated
    assert inside.value == pytest.approx((500 + 14.2 * 6) * MIB, rel=1e-6)
    outside, extrapolated = predict_memory(fit, 64)
    assert extrapolated
    assert outside.relative_width > inside.relative_width


def test_the_kink_between_phases_is_exact_with_allocated_bytes() -> None:
    # The optimizer step needs 900 MiB whatever the size; activations take over beyond 40. An
    # allocator that caches shows the maximum in every phase.
    points = []
    for b in [1, 8, 32, 48, 64]:
        allocated = {FB: 100 + 20.0 * b, OPT: 900.0}
        used = 300 + 1.05 * max(allocated.values())
        points.append(memory_point(b, {FB: used, OPT: used}, allocated=allocated))
    fit = fit_memory(points)
    for b in (4, 20, 56, 100):
        expected = (300 + 1.05 * max(900, 100 + 20 * b)) * MIB
        assert predict_memory(fit, b)[0].value == pytest.approx(expected, rel=0.002)
    answer = largest_that_fits(
        fit, (300 + 1.05 * (100 + 20 * 120)) * MIB, known_ok=64, known_too_big=None, cap=None
    )
    assert answer is not None
    assert answer.value == pytest.approx(120, abs=1)
    assert answer.low <= 120 <= answer.high


def test_allocated_bytes_show_a_slope_that_the_plateau_hides() -> None:
    points = [
        memory_point(b, {FB: 1245.0}, allocated={FB: 100 + 20.0 * b, OPT: 900.0})
        for b in [1, 2, 4, 8]
    ]
    with_allocated = fit_memory(points)
    without = fit_memory([memory_point(b, {FB: 1245.0}) for b in [1, 2, 4, 8]])
    assert not without.slope_visible
    assert predict_memory(with_allocated, 100)[0].low <= 1245 * MIB


def test_a_flat_start_is_left_out_of_the_growing_line() -> None:
    used = {b: max(2000.0, 800 + 30 * b) for b in [1, 8, 32, 64, 96, 128]}
    fit = fit_memory([memory_point(b, v) for b, v in used.items()])
    for b in (2, 16, 80, 200):
        assert predict_memory(fit, b)[0].value == pytest.approx(
            max(2000, 800 + 30 * b) * MIB, rel=0.01
        )


def test_growth_not_told_from_zero_is_not_solved() -> None:
    # ultralytics/yolov5 issue 9156: five sizes, memory flat; a solver answered 253731.
    flat = [memory_point(b, g * 1024) for b, g in zip([1, 2, 4, 8, 16],
            [2.82, 2.85, 2.84, 2.77, 2.74], strict=True)]  # fmt: skip
    assert not fit_memory(flat).slope_visible
    assert largest(flat, 24 * 1024, known_ok=16) is None
    bounded = largest(flat, 24 * 1024, known_ok=16, known_too_big=64)
    assert bounded is not None
    assert (bounded.value, bounded.low, bounded.high) == (16, 16, 63)


def test_the_answer_stays_near_what_was_measured() -> None:
    # ultralytics issue 1451: a line through 1 to 16 was followed to 281.
    answer = largest(affine([1, 2, 4]), 500 * 1024)
    assert answer is not None
    assert answer.value <= LARGEST_EXTRAPOLATION * 4
    assert answer.high > answer.value


@pytest.mark.parametrize(
    ("known_ok", "too_big", "cap"),
    [(64, None, None), (64, 80, None), (70, 72, None), (79, 80, None), (64, None, 66),
     (80, 76, None), (64, 80, 64), (8, 1000, 500), (64, 65, None)],
)  # fmt: skip
def test_the_answer_respects_what_was_run(
    known_ok: int, too_big: int | None, cap: int | None
) -> None:
    points = [memory_point(b, {FB: v}) for b, v in CPU_SWEEP.items() if b <= 64]
    answer = largest(points, 1400, known_ok=known_ok, known_too_big=too_big, cap=cap)
    assert answer is not None
    assert known_ok <= answer.low <= answer.value <= answer.high
    assert all(float(end).is_integer() for end in (answer.low, answer.value, answer.high))
    if too_big is not None and too_big > known_ok:
        assert answer.high < too_big
    if cap is not None:
        assert answer.high <= cap


def test_a_bracket_narrows_the_interval() -> None:
    points = [memory_point(b, {FB: v}) for b, v in CPU_SWEEP.items() if b <= 32]
    free = largest(points, 1500, known_ok=32)
    held = largest(points, 1500, known_ok=72, known_too_big=84)
    assert free is not None
    assert held is not None
    assert free.relative_width < 0.18
    assert held.relative_width < 0.7 * free.relative_width


def test_contradicting_runs_leave_the_bracket() -> None:
    answer = largest(affine([1, 2, 4, 8, 16, 32]), 3000, known_ok=32, known_too_big=40)
    assert answer is not None
    assert (answer.low, answer.high) == (32, 39)
    beyond = largest(affine([1, 2, 4, 8, 16, 32]), 600, known_ok=32)
    assert beyond is not None
    assert beyond.low == 32


def test_points_that_cannot_be_used_are_left_out() -> None:
    points = [
        *affine([1, 2, 4]),
        memory_point(64, {FB: 600.0}, alloc_retries=3),
        memory_point(128, {FB: 1.0}, status=PointStatus.OOM),
    ]
    fit = fit_memory(points)
    assert (fit.low_micro_batch_size, fit.high_micro_batch_size) == (1, 4)
    with pytest.raises(FitError, match="cannot fit memory"):
        fit_memory(points[:1])
    with pytest.raises(FitError, match="cannot fit memory"):
        fit_memory([])


def test_two_sizes_are_enough_for_a_wide_answer() -> None:
    answer = largest(affine([8, 32]), 500 + 14.2 * 96, known_ok=32)
    assert answer is not None
    assert answer.low <= 96 <= answer.high
    assert answer.value == 96


@settings(max_examples=40, deadline=None)
@given(
    st.floats(min_value=100, max_value=4000),
    st.floats(min_value=0.5, max_value=200),
    st.integers(min_value=0, max_value=10**6),
)
def test_more_memory_never_gives_a_smaller_size(base: float, slope: float, seed: int) -> None:
    rng = random.Random(seed)
    points = [
        memory_point(b, {FB: base + slope * b * (1 + rng.gauss(0, 0.02))}) for b in [1, 4, 16, 32]
    ]
    fit = fit_memory(points)
    answers = [
        largest_that_fits(fit, (base + slope * b) * MIB, known_ok=32, known_too_big=None, cap=None)
        for b in (33, 50, 80, 200)
    ]
    for smaller, larger in itertools.pairwise(a for a in answers if a is not None):
        assert smaller.low <= larger.low
        assert smaller.value <= larger.value
        assert smaller.high <= larger.high


@pytest.mark.parametrize("noise", [0.0, 0.003, 0.01, 0.03])
@pytest.mark.parametrize("sizes", [(1, 2, 4, 8, 16, 32), (1, 4, 16, 32), (4, 8, 16, 24, 32, 48)])
def test_synthetic_lines_are_covered(noise: float, sizes: tuple[int, ...]) -> None:
    """Held-out runs up to three times the largest size; scatter is a share of the growth."""
    rng = random.Random(round(noise * 1000) + len(sizes))
    covered, widths = [], []
    for _ in range(150):
        base, slope = rng.uniform(200, 3000), rng.uniform(5, 100)
        points = [
            memory_point(b, {FB: base + slope * b * (1 + rng.gauss(0, noise))}) for b in sizes
        ]
        true = rng.randint(sizes[-1] + 1, 3 * sizes[-1])
        usable = base + slope * true * (1 + rng.gauss(0, noise))
        answer = largest(points, usable, known_ok=0)
        assert answer is not None
        covered.append(answer.low <= true <= answer.high)
        widths.append(answer.relative_width)
    assert statistics.mean(covered) >= 0.86
    assert statistics.median(widths) <= 0.12 + 5 * noise


def test_a_third_of_a_cpu_sweep_gives_a_useful_interval() -> None:
    points = [memory_point(b, {FB: v}) for b, v in CPU_SWEEP.items() if b <= 32]
    answer = largest(points, 1565, known_ok=32)
    assert answer is not None
    assert answer.low <= 84 <= answer.high
    assert answer.relative_width < 0.18


@pytest.mark.parametrize(
    ("measured", "held_out", "widest"),
    [((8, 16, 32), 64, 0.14), ((8, 16, 32), 128, 0.16), ((8, 16, 32, 64), 128, 0.13)],
)
def test_public_gpu_sweeps_are_covered(
    measured: tuple[int, ...], held_out: int, widest: float
) -> None:
    """Device memory of some 500 image models on an A100 (GPUMemNet), held-out larger batch."""
    sweeps: dict[str, dict[int, float]] = defaultdict(dict)
    for row in public_rows("end_to_end/gpumemnet_timm_mem_a100.csv"):
        if row["oom"] == "0" and row["peak_mem_gib"]:
            sweeps[row["model"]][int(row["micro_batch"])] = float(row["peak_mem_gib"]) * 1024
    covered, widths, errors = [], [], []
    for sweep in sweeps.values():
        if not {*measured, held_out} <= sweep.keys():
            continue
        answer = largest(
            [memory_point(b, sweep[b]) for b in measured], sweep[held_out], known_ok=measured[-1]
        )
        if answer is None:
            continue
        covered.append(answer.low <= held_out <= answer.high)
        widths.append(answer.relative_width)
        errors.append(abs(answer.value / held_out - 1))
    assert len(covered) > 400
    assert 0.85 <= statistics.mean(covered) <= 0.97
    assert statistics.median(widths) <= widest
    assert statistics.median(errors) <= 0.045

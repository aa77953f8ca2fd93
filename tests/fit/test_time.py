from __future__ import annotations

import json
import math
import random
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import pytest
from fit_points import public_rows, timed_point
from hypothesis import given, settings
from hypothesis import strategies as st

from bsprof.errors import FitError
from bsprof.fit.time import EXTRAPOLATION_SHARE, fit_time, predict_time
from bsprof.records import Point, PointStatus, Quantity, Saturation

SIZES = (1, 2, 4, 8, 16, 32, 64)
FORMS: dict[str, Callable[[float], float]] = {
    "line": lambda b: 5 + 2 * b,
    "floor": lambda b: 0.5 * (20 + 2 * b + math.hypot(20 - 2 * b, 5)),
    "power": lambda b: 4 + 2 * b**0.9,
}


def curve(
    form: Callable[[float], float], sizes: Sequence[int], noise: float, rng: random.Random
) -> list[Point]:
    return [
        timed_point(b, [1e-3 * form(b) * rng.lognormvariate(0, noise) for _ in range(7)])
        for b in sizes
    ]


def test_a_clean_line_is_recovered() -> None:
    fit = fit_time(curve(FORMS["line"], SIZES, 0.0, random.Random(0)))
    assert fit.floor_s == 0
    assert fit.offset_s == pytest.approx(5e-3, rel=0.01)
    assert fit.slope_s == pytest.approx(2e-3, rel=0.01)
    assert fit.residual < 1e-3
    assert fit.saturation is Saturation.SATURATED
    assert fit.knee is not None
    assert fit.knee.value == pytest.approx(47.5, rel=0.01)
    assert fit.degrees_of_freedom == 5
    shorter = fit_time(curve(FORMS["line"], SIZES[:5], 0.0, random.Random(0)))
    assert shorter.saturation is Saturation.RISING
    assert shorter.knee is None


def test_a_launch_floor_is_found() -> None:
    fit = fit_time(curve(FORMS["floor"], SIZES, 0.005, random.Random(1)))
    assert fit.floor_s == pytest.approx(20e-3, rel=0.1)
    assert fit.slope_s == pytest.approx(2e-3, rel=0.05)
    assert fit.saturation is Saturation.SATURATED
    assert fit.knee is not None


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.03, 0.08])
@pytest.mark.parametrize("name", FORMS)
def test_held_out_sizes_of_synthetic_curves_are_covered(name: str, noise: float) -> None:
    rng = random.Random(round(100 * noise))
    covered, widths = [], []
    for _ in range(12):
        fit = fit_time(curve(FORMS[name], SIZES, noise, rng))
        for b in (3, 6, 12, 24, 48):
            quantity, extrapolated = predict_time(fit, b)
            assert not extrapolated
            covered.append(quantity.low <= 1e-3 * FORMS[name](b) <= quantity.high)
            widths.append(quantity.relative_width / 2)
    assert statistics.mean(covered) >= 0.85
    assert statistics.median(widths) <= 0.12 + noise


@pytest.mark.parametrize("amplitude", [0.01, 0.03, 0.05])
def test_held_out_sizes_of_rough_curves_are_covered(amplitude: float) -> None:
    """Tile waves: every size off the smooth curve by its own share."""
    rng = random.Random(5)
    covered = []
    for _ in range(30):
        true = {
            b: (5 + 2 * b) * (1 + amplitude * math.sin(rng.uniform(0, 100)))
            for b in (*SIZES, 3, 6, 12, 24, 48)
        }
        fit = fit_time(curve(true.__getitem__, SIZES, 0.005, rng))
        for b in (3, 6, 12, 24, 48):
            quantity, _ = predict_time(fit, b)
            covered.append(quantity.low <= 1e-3 * true[b] <= quantity.high)
    assert statistics.mean(covered) >= 0.85


def test_an_extrapolation_is_labelled_and_wide() -> None:
    fit = fit_time(curve(FORMS["line"], SIZES, 0.0, random.Random(0)))
    for size in (0.5, 65, 128, 1000):
        quantity, extrapolated = predict_time(fit, size)
        assert extrapolated
        assert quantity.low <= (1 - EXTRAPOLATION_SHARE) * quantity.value * 1.000001
        assert quantity.high >= (1 + EXTRAPOLATION_SHARE) * quantity.value * 0.999999
    near, _ = predict_time(fit, 80)
    far, _ = predict_time(fit, 6400)
    assert far.relative_width >= near.relative_width > 2 * EXTRAPOLATION_SHARE * 0.999


def test_a_measured_size_is_answered_by_its_own_measurement() -> None:
    points = curve(FORMS["power"], SIZES, 0.02, random.Random(2))
    fit = fit_time(points)
    for point in points:
        quantity, extrapolated = predict_time(fit, point.micro_batch_size)
        assert point.micro_step_s is not None
        assert not extrapolated
        assert quantity.value == pytest.approx(point.micro_step_s.value)
        assert quantity.relative_width < 0.12


def test_a_cliff_stays_where_it_was_measured() -> None:
    points = curve(lambda b: (2 + b) * (1.5 if b > 16 else 1), SIZES, 0.0, random.Random(3))
    fit = fit_time(points)
    assert fit.saturation is Saturation.SATURATED
    assert fit.knee is not None
    assert fit.knee.high <= 64
    below, above = predict_time(fit, 16)[0], predict_time(fit, 32)[0]
    assert 16 / below.value > 1.3 * 32 / above.value
    middle, _ = predict_time(fit, 23)
    assert middle.relative_width > below.relative_width


def test_too_few_sizes_are_refused() -> None:
    lonely = curve(FORMS["line"], [8], 0.0, random.Random(0))
    failed = Point(micro_batch_size=16, status=PointStatus.OOM, micro_step_s=Quantity.exact(1.0))
    with pytest.raises(FitError, match="cannot fit time"):
        fit_time([*lonely, failed])
    fit = fit_time([*lonely, *curve(FORMS["line"], [16], 0.0, random.Random(0))])
    assert fit.saturation is Saturation.UNKNOWN
    assert predict_time(fit, 12)[0].value == pytest.approx(29e-3, rel=0.05)
    with pytest.raises(ValueError, match="above zero"):
        predict_time(fit, 0)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.floats(min_value=1e-5, max_value=100), min_size=2, max_size=9),
    st.floats(min_value=0.5, max_value=600),
)
def test_any_positive_times_give_finite_answers(times: list[float], size: float) -> None:
    points = [
        Point(micro_batch_size=2**i, status=PointStatus.OK, micro_step_s=Quantity.exact(t))
        for i, t in enumerate(times)
    ]
    quantity, _ = predict_time(fit_time(points), size)
    assert 0 < quantity.low <= quantity.value <= quantity.high < math.inf


def test_a_fit_of_ten_points_takes_under_50_ms() -> None:
    points = curve(FORMS["floor"], (1, 2, 4, 8, 16, 24, 32, 48, 64, 96), 0.02, random.Random(4))
    fit_time(points)
    taken = []
    for _ in range(7):
        start = time.perf_counter()
        fit_time(points)
        taken.append(time.perf_counter() - start)
    assert min(taken) < 0.05


def test_what_the_parent_imports_loads_no_numpy() -> None:
    program = (
        "import sys, json\n"
        "import bsprof.fit.samples, bsprof.fit.knee, bsprof.fit.memory, bsprof.fit.time\n"
        "heavy = {'numpy', 'scipy', 'pandas', 'torch', 'matplotlib'}\n"
        "print(json.dumps(sorted(heavy & set(sys.modules))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == []


def spread(sizes: Sequence[int], count: int) -> list[int]:
    """So many of the sizes, both ends included, evenly spaced in their logarithm."""
    low, high = math.log(sizes[0]), math.log(sizes[-1])
    wanted = [low + (high - low) * i / (count - 1) for i in range(count)]
    return sorted({min(sizes, key=lambda b: abs(math.log(b) - w)) for w in wanted})


def held_out(
    sweeps: Sequence[dict[int, float]], pick: Callable[[list[int]], list[int]]
) -> tuple[float, float, float, int]:
    """Coverage, median relative half width, median over sweeps of the mean error, and count."""
    covered, widths, errors = [], [], []
    for sweep in sweeps:
        sizes = sorted(sweep)
        measured = pick(sizes)
        if len(measured) < 3 or len(measured) == len(sizes):
            continue
        # One run per size in the source; 2 % is what repeated steps of such runs differ by.
        points = [
            Point(
                micro_batch_size=b,
                status=PointStatus.OK,
                micro_step_s=Quantity(
                    value=sweep[b], low=sweep[b] * (1 - 0.033), high=sweep[b] * (1 + 0.033)
                ),
            )
            for b in measured
        ]
        fit = fit_time(points)
        misses = []
        for b in sizes:
            if b not in measured:
                quantity, _ = predict_time(fit, b)
                covered.append(quantity.low <= sweep[b] <= quantity.high)
                widths.append(quantity.relative_width / 2)
                misses.append(abs(quantity.value / sweep[b] - 1))
        errors.append(statistics.mean(misses))
    return (
        statistics.mean(covered), statistics.median(widths), statistics.median(errors),
        len(covered),
    )  # fmt: skip


def sia_sweeps() -> list[dict[int, float]]:
    """Step seconds on one GPU by local batch size (siasosp23/artifacts), 7 sizes or more."""
    runs: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in public_rows("end_to_end/sia_sosp23_steptime.csv"):
        if row["n_gpus"] == "1" and row["grad_accum"] == "1":
            runs[row["gpu"], row["model"]][int(row["micro_batch"])].append(
                float(row["step_ms"]) / 1e3
            )
    return [
        {b: statistics.median(times) for b, times in sweep.items()}
        for sweep in runs.values()
        if len(sweep) >= 7
    ]


def layer_sweeps() -> list[dict[int, float]]:
    """Seconds of one transformer layer by batch size (mli/transformers-benchmarks and reruns)."""
    runs: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    for row in public_rows("kernels/mli_layer_batch_sweeps.csv"):
        if row["op"].startswith("layer_") and row["batch"] and row["latency_us"]:
            key = tuple(row[c] for c in ("gpu", "source", "op", "pass", "dtype", "seq_len"))
            runs[key][int(row["batch"])] = float(row["latency_us"]) / 1e6
    return [sweep for sweep in runs.values() if len(sweep) >= 5]


@pytest.mark.parametrize(
    ("count", "widest", "worst"), [(3, 0.19, 0.06), (4, 0.165, 0.045), (5, 0.125, 0.042)]
)
def test_training_sweeps_of_sia_are_covered_between_measured_sizes(
    count: int, widest: float, worst: float
) -> None:
    coverage, width, error, held = held_out(sia_sweeps(), lambda sizes: spread(sizes, count))
    assert held > 100
    assert 0.85 <= coverage <= 0.96
    assert width <= widest
    assert error <= worst


@pytest.mark.parametrize(("count", "widest"), [(3, 0.16), (4, 0.205), (5, 0.095)])
def test_layer_sweeps_are_covered_between_measured_sizes(count: int, widest: float) -> None:
    coverage, width, _, held = held_out(layer_sweeps(), lambda sizes: spread(sizes, count))
    assert held >= 30
    assert 0.85 <= coverage <= 0.96
    assert width <= widest


def test_extrapolations_of_sia_sweeps_are_covered() -> None:
    def lower_part(sizes: list[int]) -> list[int]:
        return [b for b in sizes if b <= sizes[0] + 0.6 * (sizes[-1] - sizes[0])]

    coverage, width, error, held = held_out(sia_sweeps(), lower_part)
    assert held > 30
    assert 0.85 <= coverage <= 0.96
    assert EXTRAPOLATION_SHARE <= width <= 0.22
    assert error <= 0.14

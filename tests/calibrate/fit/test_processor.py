"""Prices of a processor are found again, and a disturbed row does not decide."""

from __future__ import annotations

import dataclasses
import random

import pytest

from bsprof.accounting.work import Work, WorkClass
from bsprof.calibrate.fit.processor import ProcessorRow, best_cache_bytes, fit_law, fit_laws
from bsprof.predict.cost.caches import beyond
from bsprof.predict.roofline.processor_laws import SPREAD

MIB = 2**20
CACHE = 8.0 * MIB


def product(m: int, n: int, k: int) -> ProcessorRow:
    work = Work(
        work_class=WorkClass.MATMUL,
        compute="fp32",
        name="aten.mm",
        flops=2 * m * n * k,
        bytes=4 * (m * n + m * k + n * k),
        m=m,
        n=n,
        k=k,
    )
    seconds = 1.5e-11 * m * n * k + 2e-10 * m * k + 4e-6
    return ProcessorRow(work=work, seconds=seconds, footprint_bytes=100_000)


def stream(size: int, name: str = "add", price: float = 3e-11, memory: float = 7e-11):
    work = Work(work_class=WorkClass.ELEMENTWISE, compute="fp32", name=f"aten.{name}", bytes=size)
    cold = size * beyond(size, CACHE)
    seconds = 2e-6 + price * size + memory * cold
    return ProcessorRow(work=work, seconds=seconds, footprint_bytes=size)


SHAPES = [(24, 88, 104), (136, 424, 472), (520, 328, 296), (24, 680, 712), (2088, 264, 296)]
SHAPES += [(n, m, k) for m, n, k in SHAPES] + [(4136, 8, 16), (8, 4136, 16)]
SIZES = [4_000, 400_000, 2 * MIB, 6 * MIB, 20 * MIB, 60 * MIB]


def test_prices_are_found_again():
    law = fit_law([product(*shape) for shape in SHAPES], CACHE, "cpu").terms
    assert law["multiplications"].value == pytest.approx(1.5e-11, rel=0.02)
    assert law["left"].value == pytest.approx(2e-10, rel=0.1)
    assert law[SPREAD].value < 0.02


def test_no_price_is_negative_whatever_the_noise():
    noise = random.Random(0)
    for _ in range(20):
        rows = [
            dataclasses.replace(row, seconds=row.seconds * noise.lognormvariate(0, 0.5))
            for row in (product(*shape) for shape in SHAPES)
        ]
        law = fit_law(rows, CACHE, "cpu").terms
        assert all(term.value >= 0 and term.error >= 0 for term in law.values())


def test_noise_shows_in_the_spread_and_in_the_errors():
    noise = random.Random(1)
    rows = [product(*shape) for shape in SHAPES]
    noisy = [dataclasses.replace(r, seconds=r.seconds * noise.lognormvariate(0, 0.2)) for r in rows]
    clean_law, noisy_law = (fit_law(r, CACHE, "cpu").terms for r in (rows, noisy))
    assert 0.1 < noisy_law[SPREAD].value < 0.4
    assert noisy_law["multiplications"].error > clean_law["multiplications"].error


def test_the_cache_is_where_streams_become_slower():
    rows = [stream(size, name) for name in ("add", "mul", "relu") for size in SIZES]
    assert best_cache_bytes(rows) == CACHE
    law = fit_law([r for r in rows if r.work.name == "aten.add"], CACHE, "cpu").terms
    assert law["bytes"].value == pytest.approx(3e-11, rel=0.05)
    assert law["memory_bytes"].value == pytest.approx(7e-11, rel=0.05)


def test_one_disturbed_row_does_not_move_the_cache():
    rows = [stream(size, name) for name in ("add", "mul", "relu") for size in SIZES]
    rows[3] = dataclasses.replace(rows[3], seconds=50 * rows[3].seconds)
    assert best_cache_bytes(rows) == CACHE


def test_without_streams_a_usual_cache_is_taken():
    assert best_cache_bytes([product(*SHAPES[0])]) == 16 * MIB


def test_plain_operators_stand_for_their_class_and_costly_ones_do_not():
    rows = [stream(size) for size in SIZES] + [stream(size, "tanh", 1e-9) for size in SIZES]
    laws = fit_laws(rows, CACHE, "cpu")
    assert laws["elementwise"].rows == len(SIZES)
    assert (
        laws["elementwise/tanh"].terms["bytes"].value
        > 10 * laws["elementwise"].terms["bytes"].value
    )
    assert laws["elementwise/add"].devices == ("cpu",)


def test_as_many_rows_as_prices_say_nothing_of_their_spread():
    assert fit_law([stream(4000)], CACHE, "cpu").terms[SPREAD].value == 0.3

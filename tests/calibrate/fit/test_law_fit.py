"""A law fitted to rows of several devices: families, sources, floors."""

import statistics

import pytest
from made_kernels import PRODUCTS, STREAMS, facts, made_rows

from bsprof.calibrate.fit.law_fit import fit_law
from bsprof.predict.roofline.groups import LAWS

MATMUL, ELEMENTWISE = LAWS["matmul/half"], LAWS["elementwise"]


def test_known_terms_are_found():
    devices = {"x": facts("ampere")}
    rows = made_rows(PRODUCTS * 4, "x", devices["x"], share=0.8, depth=90.0)
    fit = fit_law(MATMUL, rows, devices)
    terms = fit.terms["ampere"].terms
    scale = fit.device_scales["x"].value
    assert terms["share"].value / scale == pytest.approx(0.8, rel=0.12)
    assert 45 < terms["depth"].value < 180
    assert statistics.median(abs(r) for r in fit.residuals) < 0.03
    assert fit.terms["ampere"].rows == len(rows)
    assert fit.terms["ampere"].devices == ("x",)


def test_families_with_data_depart_and_others_follow_their_relative():
    devices = {"old": facts("volta"), "new": facts("ampere")}
    rows = [
        *made_rows(STREAMS * 8, "old", devices["old"], share=0.9),
        *made_rows(STREAMS * 8, "new", devices["new"], share=0.6),
    ]
    fit = fit_law(ELEMENTWISE, rows, devices)
    shares = {name: law.terms["share"].value for name, law in fit.terms.items()}
    assert shares["ampere"] < shares[""] < shares["volta"]
    assert set(shares) == {"", "volta", "ampere"}
    assert fit.terms["volta"].inherited_from == ""


def test_a_family_without_rows_between_is_there_too():
    devices = {"new": facts("ada")}
    fit = fit_law(ELEMENTWISE, made_rows(STREAMS, "new", devices["new"]), devices)
    assert set(fit.terms) == {"", "ampere", "ampere 8.6", "ada"}
    assert fit.terms["ampere 8.6"].rows == 0


def test_one_slow_machine_does_not_bend_the_shape():
    devices = {"x": facts("ampere")}
    rows = [
        *made_rows(PRODUCTS * 3, "x", devices["x"], source="usual"),
        *made_rows(PRODUCTS * 3, "x", devices["x"], source="slow", scale=1.25),
    ]
    fit = fit_law(MATMUL, rows, devices)
    logs = {name: scale for name, (scale, _error) in fit.source_scales.items()}
    assert logs["slow"] - logs["usual"] == pytest.approx(0.22, abs=0.05)
    assert statistics.median(abs(r) for r in fit.residuals) < 0.03
    assert statistics.median(abs(r) for r in fit.unscaled) > 0.05


def test_a_host_s_cost_is_found_and_not_taken_for_the_device_s():
    devices = {"x": facts("ampere")}
    rows = made_rows(STREAMS * 6, "x", devices["x"], floor_s=30e-6)
    fit = fit_law(ELEMENTWISE, rows, devices)
    assert fit.floors["x"] == pytest.approx(30e-6, rel=0.1)
    assert fit.terms["ampere"].terms["setup_us"].value < 2


def test_copies_within_a_time_are_told_apart():
    import dataclasses

    devices = {"x": facts("ampere")}
    rows = [
        dataclasses.replace(
            row,
            seconds=row.seconds + 0.5 * 4 * row.work.bytes / (0.7 * 1e12),
            extra_bytes=4 * row.work.bytes,
        )
        for row in made_rows(PRODUCTS * 3, "x", devices["x"])
    ]
    fit = fit_law(MATMUL, rows, devices)
    assert statistics.median(abs(r) for r in fit.residuals) < 0.05
    assert fit.terms["ampere"].terms["bandwidth_share"].value > 0.6


def test_more_rows_make_surer_terms():
    devices = {"x": facts("ampere")}
    errors = []
    for times in (1, 8):
        rows = made_rows(PRODUCTS * times, "x", devices["x"])
        terms = fit_law(MATMUL, rows, devices, source_rows=1000).terms["ampere"].terms
        errors.append(terms["depth"].error / terms["depth"].value)
    assert errors[1] < errors[0]


def test_expected_departures_hold_where_no_row_says_otherwise():
    devices = {"x": facts("volta"), "y": facts("ampere")}
    rows = made_rows(STREAMS, "x", devices["x"]) + made_rows(STREAMS[:1], "y", devices["y"])
    fit = fit_law(ELEMENTWISE, rows, devices, departures={"ampere": {"cache_gain": 3.0}})
    gains = {name: law.terms["cache_gain"].value for name, law in fit.terms.items()}
    assert gains["ampere"] > 1.8 * gains[""]


def test_an_expected_departure_of_a_family_without_rows_is_kept():
    devices = {"x": facts("ampere")}
    rows = made_rows(STREAMS * 4, "x", devices["x"])
    fit = fit_law(ELEMENTWISE, rows, devices, departures={"hopper": {"share": 0.5}})
    shares = {name: law.terms["share"].value for name, law in fit.terms.items()}
    assert shares["hopper"] == pytest.approx(0.5 * shares["ampere"], rel=0.01)


def test_bounds_hold():
    devices = {"x": facts("ampere")}
    rows = made_rows(PRODUCTS * 4, "x", devices["x"], scale=0.5)  # faster than the ceiling
    terms = fit_law(MATMUL, rows, devices).terms["ampere"].terms
    assert terms["share"].value <= 1.1 + 1e-9

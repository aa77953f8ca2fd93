from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsprof.errors import UsageError
from bsprof.units import (
    format_bytes,
    format_count,
    format_parameters,
    format_rate,
    format_seconds,
    format_share,
    parse_bytes,
    parse_parameters,
    parse_seconds,
    parse_share,
    parse_share_or_bytes,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4096", 4096),
        ("1B", 1),
        ("20GiB", 20 * 2**30),
        ("20 gib", 20 * 2**30),
        (" 1.5 MiB ", 3 * 2**19),
        ("2GB", 2 * 10**9),
        ("512kB", 512_000),
        ("1TiB", 2**40),
        ("1e3", 1000),
        (".5KiB", 512),
    ],
)
def test_bytes(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GiB",
        "-1GiB",
        "1 2",
        "3 parsecs",
        "5%",
        "0",
        "0GiB",
        "inf",
        "nan",
        "1e400GiB",
        "1e308TiB",
    ],
)
def test_no_bytes(text):
    with pytest.raises(UsageError):
        parse_bytes(text)


def test_an_unknown_unit_of_memory_is_named():
    with pytest.raises(UsageError) as caught:
        parse_bytes("3Gi")
    assert caught.value.found == "unit 'gi'"
    assert "GiB" in caught.value.next_step


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90), ("2m", 120), ("2 min", 120), ("1.5h", 5400), ("250ms", 0.25), ("30", 30)],
)
def test_seconds(text, expected):
    assert parse_seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "s", "0s", "-3s", "3 weeks", "1:30", "1e400s", "1e308h"])
def test_no_seconds(text):
    with pytest.raises(UsageError):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("5%", 0.05), ("0.05", 0.05), ("0%", 0.0), ("0", 0)]
)
def test_share(text, expected):
    assert parse_share(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "100%", "1", "150%", "5", "-1%", "5 GiB", "1e400%"])
def test_no_share(text):
    with pytest.raises(UsageError):
        parse_share(text)


def test_headroom_is_a_share_or_an_amount():
    assert parse_share_or_bytes("5%") == pytest.approx(0.05)
    assert type(parse_share_or_bytes("0.1")) is float
    assert parse_share_or_bytes("2GiB") == 2 * 2**30
    assert type(parse_share_or_bytes("2GiB")) is int
    assert parse_share_or_bytes("0GiB") == 0
    assert type(parse_share_or_bytes("0GiB")) is int
    for text in ("2048", "1e400GiB"):
        with pytest.raises(UsageError):
            parse_share_or_bytes(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1536, "1.50 KiB"),
        (1.5 * 2**30, "1.50 GiB"),
        (99.94 * 2**20, "99.9 MiB"),
        (123 * 2**20, "123 MiB"),
        (1023.9 * 2**20, "1.00 GiB"),
        (-(2**20), "-1.00 MiB"),
        (2**60, "1024 PiB"),
    ],
)
def test_format_bytes(value, expected):
    assert format_bytes(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0.00 us"),
        (850e-6, "850 us"),
        (0.0123, "12.3 ms"),
        (4.56, "4.56 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 05 min"),
        (7199.9, "2 h 00 min"),
        (math.inf, "inf s"),
        (-1.0, "-1.0 s"),
    ],
)
def test_format_seconds(value, expected):
    assert format_seconds(value) == expected


def test_format_the_rest():
    assert format_rate(6.1e10, "FLOP/s") == "61.0 GFLOP/s"
    assert format_share(0.051) == "5.1 %"
    assert format_share(0.42) == "42 %"
    assert format_share(-0.5) == "-50 %"
    assert format_count(1234.4) == "1,234"
    assert format_count(45.12) == "45.1"
    assert format_count(3.2) == "3.20"


@pytest.mark.parametrize(
    ("text", "count", "shown"),
    [
        ("124M", 124_000_000, "124M"),
        ("8.03b", 8_030_000_000, "8.03B"),
        ("1.1T", 1_100_000_000_000, "1.10T"),
        ("932 k", 932_000, "932k"),
        ("62", 62, "62"),
    ],
)
def test_parameters(text, count, shown):
    assert parse_parameters(text) == count
    assert format_parameters(count) == shown


@pytest.mark.parametrize("text", ["", "many", "3GB", "-3B", "1e400"])
def test_what_is_no_number_of_parameters(text):
    with pytest.raises(UsageError, match="cannot read the number of parameters"):
        parse_parameters(text)


@given(st.integers(1, 2**49))
def test_shown_bytes_read_back_within_their_digits(value):
    assert parse_bytes(format_bytes(value)) == pytest.approx(value, rel=0.006, abs=1)


@given(st.floats(1e-6, 1e3))
def test_shown_seconds_below_two_minutes_read_back(value):
    shown = format_seconds(value)
    if "min" not in shown and "us" not in shown:
        assert parse_seconds(shown) == pytest.approx(value, rel=0.006)


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused(text):
    for parse in (parse_bytes, parse_seconds, parse_share, parse_share_or_bytes):
        try:
            assert parse(text) >= 0
        except UsageError as error:
            assert repr(text) in error.doing  # noqa: PT017 - either outcome is right

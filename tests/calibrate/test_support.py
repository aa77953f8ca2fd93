"""Which precisions are timed on which device."""

import pytest

from bsprof.calibrate.support import has_precision


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        (None, {"fp32", "bf16"}),
        ((6, 1), {"fp32"}),
        ((7, 0), {"fp32", "fp16"}),
        ((7, 5), {"fp32", "fp16"}),
        ((8, 0), {"fp32", "tf32", "bf16", "fp16"}),
        ((9, 0), {"fp32", "tf32", "bf16", "fp16"}),
    ],
)
def test_types_that_would_be_emulated_are_not_timed(capability, expected):
    found = {p for p in ("fp32", "tf32", "bf16", "fp16") if has_precision(p, capability)}
    assert found == expected

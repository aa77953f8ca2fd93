"""Each planted cause is found by its name, and nothing else is."""

from __future__ import annotations

import planted
import pytest
import torch

from bsprof.diagnose.equivalence.examine import compared, examine
from bsprof.diagnose.findings import Cause, Equivalence
from bsprof.errors import UsageError, WorkloadError
from bsprof.records import Precision, WorkloadSpec


def check(name: str, **options) -> Equivalence:
    settings = {
        "sizes": (4, 4, 3),
        "weigh": "auto",
        "precision": None,
        "allowed": (),
        "beat": lambda: None,
    } | options
    spec = WorkloadSpec(model=f"planted.py:{name}")
    return examine(spec, getattr(planted, name)(), "cpu", **settings)


def names(found: Equivalence) -> list[str]:
    return [finding.cause.value for finding in found.findings]


@pytest.mark.parametrize(("name", "cause"), planted.PLANTED.items())
def test_a_planted_cause_is_named(name, cause):
    found = check(name)
    assert not found.equivalent
    assert names(found) == [cause]
    assert found.findings[0].fix


@pytest.mark.parametrize("name", ["clean", "token_mean_counted"])
@pytest.mark.parametrize("sizes", [(2, 2), (5, 3, 1), (1,) * 6])
def test_what_is_equivalent_passes(name, sizes):
    found = check(name, sizes=sizes)
    assert found.equivalent
    assert found.findings == ()
    assert found.relative_difference < 1e-14
    assert found.precision == "fp64"
    assert sum(found.weights) == pytest.approx(1)


def test_causes_that_come_together_are_told_apart():
    found = check("dropout_and_batch_norm_and_tokens")
    assert names(found) == ["dropout", "batch-norm", "token-mean"]
    assert [finding.modules for finding in found.findings] == [("drop",), ("norm",), ()]


def test_the_module_or_the_loss_in_which_samples_meet_is_named():
    assert check("batch_norm_by_hand").findings[0].modules == ("1",)
    [loss] = check("in_batch_negatives").findings
    assert "in the loss" in loss.message


def test_unequal_pieces_differ_only_where_they_count_the_same():
    found = check("clean", sizes=(4, 4, 1), weigh="equal")
    assert names(found) == ["unequal-pieces"]
    assert check("clean", sizes=(4, 4), weigh="equal").equivalent
    assert check("clean", sizes=(4, 4, 1), weigh="samples").equivalent


def test_a_count_that_is_not_used_and_one_that_is_missing():
    assert names(check("token_mean_counted", weigh="samples")) == ["token-mean"]
    with pytest.raises(UsageError, match="does not say how many tokens"):
        check("clean", weigh="tokens")


def test_many_pieces_are_searched_in_the_last_few_where_that_shows_it():
    assert names(check("token_mean", sizes=(2,) * 7)) == ["token-mean"]
    # The difference is between the first pieces and the last one only.
    assert names(check("clean", sizes=(1, 3, 3, 3), weigh="equal")) == ["unequal-pieces"]


def test_sparse_gradients_are_equal_and_told():
    found = check("sparse")
    assert found.equivalent
    assert names(found) == ["sparse-gradients"]
    assert found.findings[0].modules == ("0.weight",)


def test_an_allowed_cause_is_told_and_passes():
    found = check("dropout", allowed=(Cause.DROPOUT,))
    assert found.equivalent
    assert names(found) == ["dropout"]


def test_adding_up_in_16_bits_is_named_where_there_are_many_pieces():
    assert check("clean", sizes=(2,) * 3, precision=Precision.BF16).equivalent
    found = check("clean", sizes=(2,) * 32, precision=Precision.BF16)
    assert names(found) == ["low-precision"]
    assert "adding 32 pieces" in found.findings[0].message
    for precision in (Precision.AMP_BF16, Precision.AMP_FP16):
        found = check("clean", sizes=(2,) * 32, precision=precision)
        assert found.equivalent
        assert found.training_precision == precision.value


def test_a_model_that_cannot_be_doubled_is_compared_in_fp32():
    found = check("float_only")
    assert found.equivalent
    assert found.precision == "fp32"
    assert [note.code for note in found.notes] == ["no-double"]


def test_the_users_own_faults_are_told_as_such():
    with pytest.raises(WorkloadError) as raised:
        check("broken")
    assert "no such thing as a loss" in raised.value.found
    with pytest.raises(WorkloadError, match="cannot cut the batch"):
        check("packed")


def test_a_parameter_without_a_gradient_on_one_side_differs_wholly():
    one, zero = torch.ones(3), torch.zeros(3)
    rows = compared({"a": one}, {"a": one, "b": one})
    assert [(row.name, row.relative_difference) for row in rows] == [("b", 1.0), ("a", 0.0)]
    rows = compared({"a": one * float("nan")}, {"a": one})
    assert rows[0].relative_difference == float("inf")
    # A gradient that is zero but for rounding is measured by the others'.
    rows = compared({"a": one, "b": zero + 1e-17}, {"a": one, "b": zero})
    assert max(row.relative_difference for row in rows) < 1e-12

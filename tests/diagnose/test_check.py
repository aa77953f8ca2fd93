"""`bsprof check` through its worker and its command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bsprof
from bsprof.accumulation.plan_file import plan_of_pieces
from bsprof.cli import main
from bsprof.diagnose.check import pieces_of_plan
from bsprof.errors import UnknownDevice, UsageError, WorkloadError
from bsprof.records import WorkloadSpec

PLANTED = Path(__file__).parent / "planted.py"
SMALL = {"layers": 1}

CLEAN = {
    "mlp": {},
    "vit-tiny": {},
    "llama-3.2-1b": {"layers": 1, "width": 64},
}


def test_the_pieces_of_a_plan_stand_for_all_of_its_sizes():
    plan = plan_of_pieces([[32] * 20 + [7], [32] * 20 + [6]])
    assert pieces_of_plan(plan) == (32, 32, 32, 32, 32, 32, 7, 6)
    assert pieces_of_plan(plan_of_pieces([[4, 4, 1]])) == (4, 4, 1)


def run(capfd, *words: str):
    status = main([str(word) for word in words])
    captured = capfd.readouterr()
    return status, captured.out, captured.err


def test_the_command_line_answers_and_its_status_is_for_ci(capfd, tmp_path):
    plan = {"schema": 1, "pieces_by_rank": [[3, 2], [3, 1]], "target_batch": 9}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    status, out, err = run(
        capfd, "check", "--model", f"{PLANTED}:clean", "--plan", tmp_path / "plan.json", "--json"
    )
    assert status == 0, err
    document = json.loads(out)
    assert document["equivalent"] is True
    assert document["pieces"] == [3, 3, 2, 1]
    assert document["relative_difference"] < 1e-14

    status, out, err = run(capfd, "check", "--model", f"{PLANTED}:batch_norm", "--device", "cpu")
    assert status == 5, err
    assert out.startswith("not equivalent: pieces of 4, 4, 3 samples, weighed by samples")
    assert "[batch-norm]" in out
    assert "where: 1" in out
    assert "0.weight" in out


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("--model", "no-such-model"), 2, "unknown model"),
        (("--model", "mlp", "--weigh", "words"), 2, "unknown weights 'words'"),
        (("--model", "mlp", "--precision", "fp8"), 2, "unknown precision 'fp8'"),
        (("--model", "mlp", "--allow", "everything"), 2, "unknown cause 'everything'"),
        (("--model", "mlp", "--plan", "none.json"), 3, "cannot read the plan none.json"),
        (("--model", "mlp", "--plan", "p", "--micro-batch-size", "2"), 2, "its own pieces"),
    ],
)
def test_what_cannot_be_is_refused_before_a_worker_starts(capfd, words, status, text):
    found, _, err = run(capfd, "check", *words)
    assert found == status
    assert text in err


def test_the_same_from_python():
    found = bsprof.check_equivalence(f"{PLANTED}:token_mean", device="cpu")
    assert [finding.cause for finding in found.findings] == ["token-mean"]
    with pytest.raises(WorkloadError, match="the loss failed"):
        bsprof.check_equivalence(f"{PLANTED}:broken", device="cpu")
    with pytest.raises(UnknownDevice):
        bsprof.check_equivalence("mlp", device="abacus")
    with pytest.raises(UsageError, match="nothing to compare"):
        bsprof.check_equivalence("mlp", micro_batch_size=2, accumulation_steps=1)
    with pytest.raises(UsageError, match="in inference"):
        bsprof.check_equivalence(WorkloadSpec(model="mlp", mode=bsprof.Mode.INFER))

"""`bsprof check` through its worker and its command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bsprof
from bsprof.accumulation.plan_file import plan_of_pieces
from bsprof.cli import main
from bsprof.diagnose.check import pieces_of_plan
from bsprof.diagnose.equivalence.examine import examine
from bsprof.errors import UnknownDevice, UsageError, WorkloadError
from bsprof.records import WorkloadSpec
from bsprof.workloads.resolve import resolve

PLANTED = Path(__file__).parent / "planted.py"
DECODER = {"layers": 1, "width": 64, "vocabulary": 512}
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": 0.0}
HEADS = {"heads": 4, "key_heads": 4, "head_width": 16}
CLEAN = {
    "mlp": {},
    "vit-tiny": {},
    "ncf-ml-1m": {},
    "lstm-ptb-small": {"vocabulary": 500, "seq_len": 12},
    "gpt2": {**DECODER, **HEADS, **NO_DROPOUT, "seq_len": 16},
    "llama-3.2-1b": {**DECODER, "seq_len": 16},
    "mistral-7b": {**DECODER, "seq_len": 16},
    "pythia-70m": {**DECODER, "seq_len": 16},
    "vit-s-16": {"layers": 1, "image_size": 32},
    "deit-tiny-16": {"layers": 1, "image_size": 32},
}
"""Ten models without batch statistics or dropout, with the options that make them small."""


@pytest.mark.parametrize("model", CLEAN)
def test_a_clean_model_passes(model):
    options = dict(CLEAN[model])
    spec = WorkloadSpec(
        model=model,
        seq_len=options.pop("seq_len", None),
        image_size=options.pop("image_size", None),
        model_options=options,
    )
    found = examine(
        spec,
        resolve(spec),
        "cpu",
        sizes=(2, 2, 1),
        weigh="auto",
        precision=None,
        allowed=(),
        beat=lambda: None,
    )
    assert found.equivalent
    assert found.findings == ()
    # Norms of some decoders compute in fp32 whatever they are given.
    coarse = any(note.code == "not-all-double" for note in found.notes)
    assert found.relative_difference < (1e-6 if coarse else 1e-13)
    assert found.tolerance == (1e-5 if coarse else 1e-9)


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

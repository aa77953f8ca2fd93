"""`bsprof compare` as a program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bsprof.records import Precision, Quantity, WorkloadSpec
from bsprof.store import save

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def pair(folder, make_profile, make_point):
    """Two files: fp32 and an amp-bf16 that is about 1.8 times as fast."""
    save(make_profile(), folder / "fp32.json")
    points = [make_point(b, (0.02 + 0.002 * b) / 1.8, int(3e8 + b * 1e7)) for b in (1, 8, 64)]
    spec = WorkloadSpec(model="gpt-tiny", seq_len=128, precision=Precision.AMP_BF16)
    save(make_profile(workload=spec, points=tuple(points)), folder / "bf16.json")
    return "fp32.json", "bf16.json"


def test_it_says_which_is_faster_and_by_how_much(run, pair):
    outcome = run("compare", *pair)
    assert outcome.status == 0
    lines = outcome.out.splitlines()
    assert lines[0].startswith("amp-bf16 is 1.80 times as fast as fp32 (1.7")
    assert "what\tfp32\tamp-bf16" in lines
    assert "precision\tfp32\tamp-bf16" in lines
    assert "micro-batch\t64\t64" in lines
    assert outcome.err == ""


def test_a_target_compares_plans(run, pair):
    outcome = run("compare", *pair, "--target-batch", "1000", "--world-size", "2")
    assert outcome.status == 0
    assert (
        "compared\tthe recommended plans for 1,000 samples per update over 2 ranks" in outcome.out
    )
    assert any(line.startswith("accumulation steps\t") for line in outcome.out.splitlines())


def test_json_is_one_document(run, pair):
    document = run("compare", *pair, "--json").json
    assert list(document) == sorted(document)
    assert [p["name"] for p in document["profiles"]] == list(pair)
    assert document["profiles"][1]["ratio"]["value"] == pytest.approx(1.8)


@pytest.mark.parametrize("ending", ["html", "pdf", "md", "csv"])
def test_a_report_is_written_beside_the_answer(run, pair, folder, ending):
    outcome = run("compare", *pair, "--target-batch", "64", "-o", f"c.{ending}")
    assert outcome.status == 0, outcome.err
    assert outcome.err.splitlines() == [f"wrote c.{ending}"]
    assert "times as fast" in outcome.out
    content = (folder / f"c.{ending}").read_bytes()
    assert content.startswith(b"%PDF") if ending == "pdf" else b"amp-bf16" in content
    assert run("compare", *pair, "-o", f"c.{ending}").status == 3


def test_a_report_can_go_to_stdout(run, pair):
    outcome = run("compare", *pair, "-o", "-", "--format", "md", "-q")
    assert outcome.status == 0
    assert outcome.out.startswith("# 2 profiles compared")


def test_unlike_things_are_warned_about(run, make_profile, folder):
    save(make_profile(), folder / "a.json")
    save(make_profile(workload=WorkloadSpec(model="mlp"), complete=False), folder / "b.json")
    outcome = run("compare", "a.json", "b.json")
    assert outcome.status == 0
    assert "warning: The models are not the same" in outcome.err
    assert "note: b.json is partial; finish it with `bsprof sweep --model mlp" in outcome.err
    assert "warning: Samples do not have the same size" in outcome.err
    assert len(outcome.err.splitlines()) == 3
    assert run("compare", "a.json", "b.json", "-q").err == ""


def test_profiles_that_never_ran_are_no_answer(run, make_profile, make_point, folder):
    from bsprof.records import Point, PointStatus

    nothing = make_profile(points=(Point(micro_batch_size=1, status=PointStatus.OOM),))
    save(nothing, folder / "a.json")
    save(make_profile(), folder / "b.json")
    both = run("compare", "a.json", "a.json")
    assert (both.status, both.out) == (5, "")
    assert "no micro-batch size of gpt-tiny fits" in both.err
    one = run("compare", "a.json", "b.json")
    assert one.status == 0
    assert one.out.startswith("only b.json has an answer")
    slow = make_profile(points=(make_point(1, 1.0, 9, micro_step_s=Quantity.exact(1.0)),))
    save(slow, folder / "c.json")
    assert run("compare", "b.json", "c.json").status == 0


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        ([], 2, "at least two profiles"),
        (["fp32.json"], 2, "at least two profiles"),
        (["fp32.json", "none"], 3, "no profile none"),
        (["fp32.json", "bf16.json", "--world-size", "2"], 2, "no effect without a target"),
        (["fp32.json", "bf16.json", "--headroom", "1%", "--world-size", "2"], 2, "have no effect"),
        (["fp32.json", "bf16.json", "--format", "md"], 2, "--format has no effect without -o"),
        (["fp32.json", "bf16.json", "-o", "x.docx"], 2, "unknown format of a report 'docx'"),
        (["fp32.json", "bf16.json", "-o", "-", "--format", "md", "--json"], 2, "both want stdout"),
        (["fp32.json", "bf16.json", "--target-batch", "8", "--target-tokens", "9"], 2, "not both"),
        (["fp32.json", "bf16.json", "--target-batch", "1", "--world-size", "4"], 2, "cannot be"),
    ],
)
def test_it_refuses(run, pair, words, status, text):  # noqa: ARG001
    outcome = run("compare", *words)
    assert outcome.status == status, outcome.err
    assert text in outcome.err
    assert outcome.out == ""


def test_comparing_loads_nothing_heavy(pair, folder):
    script = (
        "from bsprof.cli import main; import sys; "
        f"main(['compare', *{list(pair)}]); "
        "print([n for n in ('torch', 'numpy', 'scipy', 'matplotlib') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.splitlines()[-1] == "[]"

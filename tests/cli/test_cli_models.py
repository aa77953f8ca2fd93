"""`bsprof models` as a program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def listed(outcome) -> list[str]:
    return [line.split("\t")[0] for line in outcome.out.splitlines()[1:]]


def test_everything_is_listed_with_the_other_forms_beside(run):
    outcome = run("models")
    assert outcome.status == 0
    head, *rows = (line.split("\t") for line in outcome.out.splitlines())
    assert head == ["model", "family", "task", "parameters", "what it is"]
    by_name = {row[0]: row for row in rows}
    assert by_name["gpt2"][1:4] == ["decoder", "causal language model", "124M"]
    assert by_name["gpt-tiny"][1:4] == ["decoder", "causal language model", "3.45M"]
    assert list(by_name) == sorted(by_name)
    for form in ("timm:NAME", "torchvision:NAME", "hf:FOLDER-or-id", "file.py:factory"):
        assert f"also: --model {form}: " in outcome.err
    assert run("models", "-q").err == ""


def test_a_part_of_a_name_filters(run):
    outcome = run("models", "llama")
    assert outcome.status == 0
    assert "llama-3.1-8b" in listed(outcome)
    assert all("llama" in name for name in listed(outcome))
    assert outcome.err == ""


def test_options_filter(run):
    found = listed(run("models", "--family", "decoder", "--max-parameters", "130M"))
    assert {"gpt2", "gpt-tiny"} <= set(found)
    assert "gpt2-medium" not in found
    assert listed(run("models", "--task", "masked", "--min-parameters", "300M")) == [
        "bert-large",
        "roberta-large",
    ]


def test_a_whole_name_is_explained(run):
    outcome = run("models", "gpt2")
    assert outcome.status == 0
    lines = outcome.out.splitlines()
    assert lines[0].startswith("gpt2: ")
    assert "parameters\t124,439,808 (124M)" in lines
    assert "a sample\t1,024 tokens (--seq-len)" in lines
    assert any(line.startswith("published in\thttps://") for line in lines)
    assert "example\tbsprof sweep --model gpt2" in lines
    assert "first try\tbsprof sweep --model gpt2 --model-option layers=2" in lines
    assert "--model-option\tdefault" in lines
    assert "layers\t12" in lines
    assert "gpt2-xl" in outcome.err
    assert run("models", "GPT2-small").out == outcome.out


def test_a_built_in_is_explained_without_settings(run):
    outcome = run("models", "mlp")
    assert outcome.status == 0
    assert "family\tmlp (built-in)" in outcome.out
    assert "--model-option" not in outcome.out


def test_explain_explains_every_match(run):
    outcome = run("models", "bert-", "--explain")
    assert outcome.out.count("\nexample\tbsprof sweep --model ") == len(
        run("models", "bert-", "--json").json["models"]
    )
    assert "\n\nbert-large: " in outcome.out


def test_json_holds_all_that_is_known(run):
    (model,) = run("models", "resnet50", "--json").json["models"]
    assert model["parameters"] == 25_557_032
    assert model["settings"]["depths"] == [3, 4, 6, 3]
    assert model["sample"] == {"image_size": 224}
    assert model["kind"] == "catalogue"
    document = run("models", "--json").json
    assert document["schema"] == 1
    assert [form["form"] for form in document["forms"]][:2] == ["timm:NAME", "torchvision:NAME"]
    assert len(document["models"]) > 90


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("timm:resnet50", "timm.create_model"),
        ("hf:some/model", "fields of the configuration"),
        ("train.py:make", "your own function in that file"),
        ("pkg.mod:make", "your own function in that module"),
    ],
)
def test_other_forms_are_explained(run, text, words):
    outcome = run("models", text)
    assert outcome.status == 0
    assert words in outcome.out
    assert f"example\tbsprof sweep --model {text}" in outcome.out
    assert len(run("models", text, "--json").json["forms"]) == 1


@pytest.mark.parametrize("installed", [None, "1.2.3"])
def test_a_package_that_is_missing_is_said_to_be(run, monkeypatch, installed):
    monkeypatch.setattr("bsprof.cli.models._version", lambda package: installed)  # noqa: ARG005
    text = "not installed: pip install timm" if installed is None else "timm 1.2.3"
    assert f"package\t{text}" in run("models", "timm:x").out


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        (["gtp2"], ["no model matches 'gtp2'", "near: gpt2"]),
        (["qqqqqqqq"], ["no model matches 'qqqqqqqq'", "see `bsprof models`"]),
        (["--min-parameters", "900T"], ["no model meets the filters", "ask for less"]),
        (["gpt2", "--max-parameters", "1M"], ["no model of 'gpt2' meets the filters"]),
        (["timm:x", "--family", "vit"], ["--family has no effect on timm:x"]),
        (["http://x.y/z"], ["cannot read the model 'http://x.y/z'"]),
        (["--family", "vitt"], ["unknown family 'vitt'", "did you mean vit"]),
        (["--max-parameters", "3GB"], ["cannot read the number of parameters '3GB'"]),
    ],
)
def test_it_refuses(run, words, texts):
    outcome = run("models", *words)
    assert (outcome.status, outcome.out) == (2, "")
    for text in texts:
        assert text in outcome.err


def test_explaining_loads_nothing_heavy():
    script = (
        "from bsprof.cli import main; import sys; main(['models', 'gpt2']); "
        "print([n for n in ('torch', 'numpy', 'matplotlib', 'timm') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.splitlines()[-1] == "[]"

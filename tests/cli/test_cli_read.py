from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import typer

from bsprof.cli import build_app
from bsprof.store import profile_path, save

NAME = "cpu-test-3000/gpt-tiny/20260114T090000Z"


def test_recommend_takes_the_newest_and_says_which(run, stored):  # noqa: ARG001
    outcome = run("recommend", "--target-batch", "96")
    assert outcome.status == 0
    assert f"note: profile {NAME}, the newest in profiles" in outcome.err.splitlines()
    lines = outcome.out.splitlines()
    assert any(line.startswith("why\t") for line in lines)
    assert any(line.startswith("effective batch\t96") for line in lines)


def test_recommend_json_is_one_document(run, stored):  # noqa: ARG001
    document = run("recommend", "--target-batch", "96", "--world-size", "2", "--json").json
    assert list(document) == sorted(document)
    assert document["target_batch"] == 96
    assert document["world_size"] == 2
    assert document["profile"] == NAME
    assert [sum(pieces) for pieces in document["pieces_by_rank"]] == [48, 48]


def test_recommend_writes_the_plan(run, stored, folder):  # noqa: ARG001
    outcome = run("recommend", "--target-tokens", "12288", "-o", "plan.json")
    assert outcome.status == 0
    assert outcome.err.splitlines()[-1] == "wrote plan.json" or "wrote plan.json" in outcome.err
    assert json.loads((folder / "plan.json").read_text())["target_batch"] == 96
    again = run("recommend", "--target-batch", "8", "-o", "plan.json")
    assert again.status == 3
    assert "the file exists" in again.err
    assert run("recommend", "--target-batch", "8", "-o", "plan.json", "--force").status == 0
    both = run("recommend", "--target-batch", "8", "-o", "-", "--json")
    assert both.json["target_batch"] == 8


def test_recommend_from_a_named_file(run, make_profile, folder):
    save(make_profile(), folder / "mine.json")
    outcome = run("recommend", "--profile", "mine.json", "--target-batch", "8", "-q")
    assert outcome.status == 0
    assert outcome.err == ""


def test_recommend_of_a_model_and_device(run, make_profile):
    profile = make_profile()
    save(profile, profile_path(profile, Path("profiles")))
    words = ("recommend", "--target-batch", "8", "--model", "gpt-tiny")
    assert run(*words, "--device", "cpu").status == 0
    missing = run(*words, "--device", "cuda")
    assert missing.status == 3
    assert "no profile of gpt-tiny on cuda in the store profiles" in missing.err


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["--target-batch", "1", "--world-size", "4"], 2, "cannot be shared by 4 ranks"),
        ([], 2, "needs a target"),
        (["--target-batch", "8", "--target-tokens", "9"], 2, "not both"),
        (["--target-batch", "0"], 2, "Invalid value for '--target-batch'"),
        (["--target-batch", "8", "--headroom", "120%"], 2, "outside 0 to 100 %"),
        (["--target-batch", "8", "--headroom", "1.999GiB"], 5, ""),
        (["--target-batch", "8", "--headroom", "1e400GiB"], 2, "cannot read the amount"),
        (["--target-batch", "8", "--headroom", "2GiB"], 2, "leaves nothing of the 2.00 GiB"),
        (["--target-batch", "8", "--tolerance", "x"], 2, "cannot read the share"),
        (["--target-batch", "8", "--objective", "speed"], 2, "unknown objective 'speed'"),
        (["--target-batch", "8", "--profile", "none"], 3, "no profile none"),
        (["--target-batch", "8", "--profile", NAME, "--model", "mlp"], 2, "--profile names one"),
        (["--target-batch", "8", "-o", "no/plan.json"], 3, "cannot write no/plan.json"),
    ],
)
def test_recommend_refuses(run, stored, words, status, text):  # noqa: ARG001
    outcome = run("recommend", *words)
    assert outcome.status == status, outcome.err
    assert text in outcome.err
    assert outcome.out == ""


@pytest.mark.parametrize(
    "words", [("recommend", "--target-batch", "8"), ("report", "-o", "r.html")]
)
def test_no_profile_yet(run, words):
    outcome = run(*words)
    assert outcome.status == 3
    assert outcome.err.splitlines() == [
        "error: no profile in the store profiles",
        "  found:  none",
        "  next:   measure one with `bsprof sweep --model MODEL`, or name one with --profile",
    ]


def test_a_partial_profile_is_said_to_be_partial(run, make_profile, folder):
    save(make_profile(complete=False), folder / "p.json")
    outcome = run("recommend", "--profile", "p.json", "--target-batch", "8")
    assert outcome.status == 0
    start = "bsprof sweep --model gpt-tiny --seq-len 128 --device cpu"
    assert f"p.json is partial; finish it with `{start} -o p.json --resume`" in outcome.err
    assert f"{start} --resume goes on where it stopped" in outcome.err


def test_advised_commands_can_be_run(run, make_profile, folder):
    save(make_profile(complete=False), folder / "p.json")
    document = run("recommend", "--profile", "p.json", "--target-batch", "48", "--json").json
    texts = [note["hint"] for note in document["notes"]]
    advised = [text[text.index("bsprof sweep") :] for text in texts if "bsprof sweep" in text]
    assert advised
    for text in advised:
        words = shlex.split(re.split(r" (?:goes on|measures)", text)[0])
        command = typer.main.get_command(build_app()).commands[words[1]]  # type: ignore[attr-defined]
        assert command.make_context(words[1], words[2:]).params["model"] == "gpt-tiny"


def test_nothing_may_be_left_free(run, stored):  # noqa: ARG001
    documents = [
        run("recommend", "--target-batch", "96", "--headroom", text, "--json").json
        for text in ("0%", "0GiB")
    ]
    assert documents[0]["micro_batch_size"] == documents[1]["micro_batch_size"]
    assert documents[1]["asked_headroom_bytes"] == 0


def test_a_report_shows_the_plan_that_recommend_gives(run, stored):  # noqa: ARG001
    question = ("--target-batch", "2001", "--tolerance", "5%", "--objective", "memory")
    plan = run("recommend", *question, "--json").json
    report = run("report", "-o", "r.csv", *question, "--json").json
    assert report["recommendation"] == plan
    assert (plan["tolerance"], plan["objective"]) == (0.05, "memory")
    assert run("report", "-o", "s.csv", *question[:-1], "speed").status == 2


def test_a_newer_profile_is_refused_with_advice(run, stored):
    text = stored.read_text().replace('"schema": 1', '"schema": 2')
    stored.write_text(text)
    outcome = run("recommend", "--target-batch", "8")
    assert outcome.status == 3
    assert "format version 2; this bsprof knows up to version 1" in outcome.err
    assert "upgrade bsprof" in outcome.err


def test_devices_and_links_survive_output(run, stored, folder):  # noqa: ARG001
    (folder / "null").symlink_to("/dev/null")  # never the machine's own, should this fail
    (folder / "real.csv").write_text("old")
    (folder / "link.csv").symlink_to("real.csv")
    words = ("report", "--format", "csv", "-q")
    assert run(*words, "-o", "null").status == 0
    assert run(*words, "-o", "null", "--force").status == 0
    assert run(*words, "-o", "link.csv").status == 3
    assert run(*words, "-o", "link.csv", "--force").status == 0
    assert (folder / "null").is_char_device()
    assert (folder / "link.csv").is_symlink()
    assert (folder / "real.csv").read_text().startswith("profile,")


@pytest.mark.parametrize(
    ("field", "number"), [("usable_bytes", "9" * 400), ("capacity_bytes", "1e400")]
)
def test_numbers_too_large_are_a_broken_file_not_a_bug(run, stored, field, number):
    document = json.loads(stored.read_text())
    document["device"][field] = json.loads(number)
    stored.write_text(json.dumps(document).replace("Infinity", "1e400"))
    outcome = run("recommend", "--target-batch", "8")
    assert outcome.status == 3
    assert f"Profile.device.{field} is too large a number" in outcome.err


@pytest.mark.parametrize("ending", ["html", "md", "csv"])
def test_report_in_each_format(run, stored, folder, ending):  # noqa: ARG001
    outcome = run("report", "-o", f"report.{ending}", "--target-batch", "96")
    assert outcome.status == 0, outcome.err
    assert outcome.out == ""
    assert outcome.err.splitlines()[-1] == f"wrote report.{ending}"
    assert b"gpt-tiny" in (folder / f"report.{ending}").read_bytes()


def test_report_to_stdout_needs_a_format(run, stored):  # noqa: ARG001
    assert run("report", "-o", "-").status == 2
    outcome = run("report", NAME, "-o", "-", "--format", "csv", "-q")
    assert (outcome.status, outcome.err) == (0, "")
    assert "128" in outcome.out


def test_report_json_says_what_was_written(run, stored):  # noqa: ARG001
    document = run("report", "-o", "r.csv", "--target-batch", "96", "--json").json
    assert document["profiles"] == [NAME]
    assert document["output"] == "r.csv"
    assert document["format"] == "csv"
    assert document["schema"] == 1
    assert document["recommendation"]["target_batch"] == 96
    assert run("report", "-o", "s.csv", "--json").json["recommendation"] is None


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-o", "r.docx"], "unknown format of a report 'docx'"),
        (["-o", "report"], "does not say the format"),
        (["-o", "r.html", "--format", "htm"], "did you mean html?"),
        (["-o", "r.html", "--world-size", "2"], "no effect without a target"),
        (["-o", "-", "--format", "md", "--json"], "both want stdout"),
        ([NAME, NAME, "-o", "r.md", "--target-batch", "8"], "of 2 profiles shows no"),
        ([], "Missing option '-o' / '--output'"),
    ],
)
def test_report_refuses(run, stored, words, text):  # noqa: ARG001
    outcome = run("report", *words)
    assert outcome.status == 2
    assert text in outcome.err


def test_profiles_lists_the_store(run, stored):
    broken = stored.parent / "20270101T000000Z.json"
    broken.write_text("{")
    outcome = run("profiles")
    assert outcome.status == 0
    rows = [line.split("\t") for line in outcome.out.splitlines()]
    assert rows[0][0] == "profile"
    assert rows[1][0] == "cpu-test-3000/gpt-tiny/20270101T000000Z"
    assert rows[1][-1] == "unreadable"
    assert rows[2] == [NAME, "gpt-tiny", "Test Processor 3000", "fp32", "8", "-", "84", "complete"]
    assert "20270101T000000Z.json cannot be read: not valid JSON" in outcome.err


def test_profiles_as_json(run, stored, make_profile, make_point):
    profile = make_profile(
        created_at="2026-01-15T09:00:00Z", points=(make_point(4, 0.1, 9, confirmed=True),)
    )
    save(profile, stored.parent / "20260115T090000Z.json")
    document = run("profiles", "--json").json
    assert document["store"] == "profiles"
    assert document["schema"] == 1
    assert document["profiles"][1]["max_micro_batch_size"] == {"value": 84, "low": 80, "high": 90}
    first, second = document["profiles"][:2]
    assert first["confirmed"] == [4]
    assert second["name"] == NAME
    assert second["tried"] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert second["problem"] is None


def test_an_empty_store_is_no_error(run):
    outcome = run("profiles")
    assert outcome.status == 0
    assert "the store profiles is empty" in outcome.err


def test_doctor(run, monkeypatch):
    from types import SimpleNamespace

    ok = SimpleNamespace(name="python", status="ok", found="3.11", hint="")
    bad = SimpleNamespace(name="torch", status="fail", found="none", hint="install it")
    monkeypatch.setattr("bsprof.measure.doctor.examine", lambda: [ok])
    assert run("doctor").status == 0
    monkeypatch.setattr("bsprof.measure.doctor.examine", lambda: [ok, bad])
    outcome = run("doctor")
    assert outcome.status == 3
    assert outcome.out.splitlines() == [
        "check\tstatus\tfound",
        "python\tok\t3.11",
        "torch\tfail\tnone",
    ]
    assert outcome.err.splitlines() == ["warning: torch: install it"]
    monkeypatch.setattr("bsprof.measure.doctor.examine", list)
    assert run("doctor", "--json").json == {"checks": [], "schema": 1}


def test_a_link_to_nothing_in_the_store_is_shown(run, stored):
    (stored.parent / "x.json").symlink_to("none.json")
    outcome = run("profiles")
    assert outcome.status == 0, outcome.err
    assert "x.json cannot be read: no such file" in outcome.err


def test_recommend_writes_settings_with_the_plans_digest(run, stored, tmp_path):  # noqa: ARG001
    path = tmp_path / "settings.yaml"
    words = ("recommend", "--target-batch", "96", "--for", "axolotl")
    outcome = run(*words, "-o", str(path), "--json")
    assert outcome.status == 0
    document = json.loads(outcome.out)
    text = path.read_text()
    assert text == document["settings"]["text"]
    assert document["digest"] in text
    assert document["settings"]["effective_batch_size"] == 96
    assert f"micro_batch_size: {document['settings']['micro_batch_size']}\n" in text
    shown = run(*words)
    assert text in shown.out
    unknown = run("recommend", "--target-batch", "96", "--for", "axolot")
    assert unknown.status == 2
    assert "axolotl" in unknown.err


def test_recommend_says_epochs_and_rates(run, stored):  # noqa: ARG001
    words = ("recommend", "--target-batch", "100", "--dataset-size", "1009", "--epochs", "2")
    outcome = run(*words, "--warmup", "10%", "--current-batch", "25")
    assert "10 whole updates and 9 samples over" in outcome.err
    assert "20 in 2 epochs, of them 2 of warm-up" in outcome.err
    assert "Adam: learning rate times 2.00" in outcome.err


@pytest.fixture
def two_devices(make_profile, make_point, tmp_path):
    """Paths of a profile and of one of a device that takes half the time for each sample."""
    from dataclasses import replace

    from bsprof.store import save

    slow = make_profile()
    points = [make_point(b, 0.01 + 0.001 * b, 2**28 + b * 2**24) for b in (1, 2, 4, 8, 16, 32)]
    fast = make_profile(points=points, device=replace(slow.device, name="Test Processor 4000"))
    paths = [tmp_path / "slow.json", tmp_path / "fast.json"]
    for profile, path in zip((slow, fast), paths, strict=True):
        save(profile, path)
    return [str(path) for path in paths]


def test_recommend_chooses_among_profiles(run, two_devices):
    words = ["recommend", "--target-batch", "64", "--json"]
    for path in two_devices:
        words += ["--profile", path]
    by_time = json.loads(run(*words).out)
    assert by_time["profile"].endswith("fast.json")
    assert len(by_time["devices"]["profiles"]) == 2
    prices = ["--price", "cpu-test-3000=1", "--price", "cpu-test-4000=9"]
    by_cost = run(*words, "--objective", "cost", *prices)
    assert json.loads(by_cost.out)["profile"].endswith("slow.json")
    unpriced = run(*words, "--objective", "cost")
    assert unpriced.status == 2
    assert "--price cpu-test-3000=N" in unpriced.err


def test_recommend_for_mixed_devices(run, two_devices):
    slow, fast = two_devices
    words = ["recommend", "--target-batch", "96", "--profile", slow, "--profile", fast]
    outcome = run(*words, "--mixed", "1,2", "--json", "--for", "pytorch")
    assert outcome.status == 0
    document = json.loads(outcome.out)
    assert document["world_size"] == 3
    assert sum(map(sum, document["pieces_by_rank"])) == 96
    assert sum(document["pieces_by_rank"][1]) > sum(document["pieces_by_rank"][0])
    assert document["digest"] in document["settings"]["text"]
    assert run(*words, "--mixed", "1,2", "--for", "hf").status == 2
    assert run(*words[:-2], "--mixed", "1,2").status == 2
    assert run(*words, "--mixed", "1,x").status == 2
    assert run(*words, "--mixed", "1,2").status == 0

"""Profiles side by side: ratios, verdicts, what is not alike."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recommend_profiles import Mode, affine, curve_profile, device, facts, ok_point, profile_of

from bsprof.errors import MeasurementError, NoFeasibleBatch, UsageError
from bsprof.recommend.compare import compare_profiles
from bsprof.recommend.compare_document import comparison_document
from bsprof.recommend.differences import differences, labels, models_differ, sources_differ
from bsprof.recommend.wording import three_digits
from bsprof.records import Origin, Precision, WorkloadKey, WorkloadSpec

SIZES = (1, 2, 4, 8, 16)


def made(slope_s: float = 0.01, *, name: str = "test CPU", half_width: float = 0.01, **more):
    return curve_profile(
        SIZES,
        affine(0.01, slope_s),
        half_width=half_width,
        **({"device": device(name=name), "facts": facts(tokens_per_sample=128)} | more),
    )


def compared(*profiles, **question):
    return compare_profiles([(f"p{i}", p) for i, p in enumerate(profiles, start=1)], **question)


def test_the_rates_of_micro_steps_are_held_against_the_first():
    slow, fast = made(0.01), made(0.005, name="faster CPU")
    found = compared(slow, fast)
    first, second = found.profiles
    assert (first.label, second.label) == ("test CPU", "faster CPU")
    assert first.plan.micro_batch_size == second.plan.micro_batch_size == 16
    assert first.rate_per_s.value == pytest.approx(16 / 0.17)
    assert first.plan.samples_per_s.value == pytest.approx(16 / (0.17 + 0.01))
    assert first.plan.step_time_s.value == pytest.approx(0.18)
    assert second.ratio.value == pytest.approx(0.17 / 0.09)
    assert second.ratio.low < second.ratio.value < second.ratio.high
    # Two independent relative errors of 1 %.
    assert second.ratio.high - second.ratio.value == pytest.approx(
        0.01 * 2**0.5 * second.ratio.value, rel=0.03
    )
    assert second.verdict == "faster CPU is 1.89 times as fast as test CPU (1.86 to 1.92)"
    assert found.title == second.verdict
    assert first.verdict == ""
    assert first.ratio.value == 1
    assert found.unit == "sample"
    assert found.notes == ()


def test_a_target_compares_the_plans():
    found = compared(made(), made(0.02, name="b"), target_batch=64, world_size=2)
    assert [p.plan.accumulation_steps for p in found.profiles] == [2, 2]
    assert found.has_target
    for entry in found.profiles:
        assert entry.rate_per_s == entry.plan.samples_per_s
        assert entry.plan.effective_batch_size == 64
    little = compared(made(), made(name="b"), target_batch=64, headroom=0.9)
    assert [p.plan.micro_batch_size for p in little.profiles] == [2, 2]


def test_an_interval_that_holds_one_shows_no_difference():
    near = compared(made(), made(0.0101, name="b", half_width=0.05))
    assert near.title.startswith("no difference shown between b and test CPU: 0.99")
    assert "times as fast (0.9" in near.title
    sharp = compared(made(half_width=0.001), made(name="b", half_width=0.001))
    assert sharp.title == "test CPU and b are equally fast, to within 0.1 %"


def test_three_profiles_name_the_fastest_and_what_ties_with_it():
    slow, fast = made(0.02), made(0.01, name="b")
    also = made(0.01005, name="c")
    assert compared(slow, fast).title.endswith("as fast as test CPU (1.91 to 1.97)")
    assert compared(slow, fast, also).title == (
        "b and c are the fastest, no difference shown between them"
    )
    assert compared(slow, fast, made(0.02, name="c")).title == "b is the fastest"
    assert compared(fast, also, made(0.01, name="d")).title == (
        "no difference in speed shown between b, c and d"
    )


def failing():
    return curve_profile((), affine(0, 1), failed=(1,), device=device(name="small"))


def test_a_profile_without_an_answer_is_said_to_have_none():
    found = compared(failing(), made(0.01), made(0.005, name="b"))
    none, first, second = found.profiles
    assert isinstance(none.error, NoFeasibleBatch)
    assert none.verdict == "small has no answer"
    assert first.ratio.value == 1
    assert second.verdict.endswith("as fast as test CPU (1.86 to 1.92)")
    (note,) = [n for n in found.notes if n.code == "no-answer"]
    assert note.message.startswith("small: no micro-batch size of gpt-tiny fits")
    found.raise_for_status()
    assert compared(failing(), made()).title == "only test CPU has an answer"


def test_when_none_has_an_answer_the_first_reason_is_raised():
    found = compared(failing(), failing())
    assert found.title == "none of the profiles has an answer"
    with pytest.raises(NoFeasibleBatch, match="fits on small"):
        found.raise_for_status()
    broken = profile_of([ok_point(1, 1.0, micro_steps_run=0)])
    with pytest.raises(MeasurementError):
        compared(broken, broken).raise_for_status()


def test_the_confirmed_size_is_the_one_compared():
    profile = made()
    points = tuple(replace(p, confirmed=p.micro_batch_size == 4) for p in profile.points)
    (first, _) = compared(replace(profile, points=points), made(name="b")).profiles
    assert (first.plan.micro_batch_size, first.plan.confirmed) == (4, True)


def test_samples_of_different_length_are_compared_by_tokens():
    short = made(0.01, workload=WorkloadSpec(model="gpt-tiny", seq_len=128))
    long = made(
        0.01,
        workload=WorkloadSpec(model="gpt-tiny", seq_len=512),
        facts=facts(tokens_per_sample=512),
    )
    found = compared(short, long)
    assert found.unit == "token"
    assert found.profiles[1].ratio.value == pytest.approx(4)
    assert found.profiles[0].label == "sequence 128"
    (note,) = found.notes
    assert note.code == "different-samples"
    assert "(128 in sequence 128 and 512 in sequence 512)" in note.message


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"facts": facts(parameter_count=5, tokens_per_sample=128)}, "different-models"),
        ({"workload": WorkloadSpec(model="gpt-tiny", mode=Mode.INFER)}, "different-modes"),
        ({"workload": WorkloadSpec(model="gpt-tiny", image_size=64)}, "different-samples"),
        ({"origin": Origin.PREDICTED}, "not-measured"),
        ({"complete": False}, "incomplete-profile"),
    ],
)
def test_what_makes_a_comparison_unequal_is_noted(changes, code):
    assert [n.code for n in compared(made(), made(**changes)).notes] == [code]


def test_another_model_may_have_other_samples_too():
    found = compared(made(), made(workload=WorkloadSpec(model="mlp")))
    assert [n.code for n in found.notes] == ["different-models", "different-samples"]


def test_a_size_that_is_the_default_is_no_difference():
    usual, asked = (
        made(workload=WorkloadSpec(model="vit-tiny", image_size=size)) for size in (None, 32)
    )
    assert compared(usual, asked).notes == ()
    option = made(workload=WorkloadSpec(model="resnet50", model_options={"image_size": 96}))
    found = compared(made(workload=WorkloadSpec(model="resnet50")), option)
    assert [n.code for n in found.notes] == ["different-samples"]


def test_positions_for_longer_samples_make_no_other_model():
    usual = made(facts=facts(parameter_count=100))
    longer = made(
        workload=WorkloadSpec(model="gpt-tiny", seq_len=512), facts=facts(parameter_count=101)
    )
    assert "different-models" not in [n.code for n in compared(usual, longer).notes]


def test_what_a_plan_leaves_out_is_told_of_each():
    profiles = [(name, made(name=name)) for name in "ab"]
    notes = compare_profiles(profiles, target_batch=64, world_size=2).notes
    assert [n.code for n in notes].count("synchronisation-not-measured") == 2


def test_a_small_difference_on_a_cpu_is_doubted():
    a, b, c = made(0.010), made(0.0107), made(0.02)
    assert "cpu-processes-differ" in [n.code for n in compared(a, b).notes]
    assert "cpu-processes-differ" not in [n.code for n in compared(a, c).notes]


def test_an_edited_file_is_noted():
    def profile(sources: str, model: str = "train.py:make"):
        key = WorkloadKey(sources=sources, parameters="p", operators="o", options="o", software="s")
        return made(workload=WorkloadSpec(model=model), key=key)

    assert [n.code for n in compared(profile("a"), profile("b")).notes] == ["edited-sources"]
    assert sources_differ([profile("a"), profile("b")])
    assert not sources_differ([profile("a"), profile("a")])
    assert not sources_differ([profile("a", "mlp"), profile("b", "mlp")])


def test_adapters_are_no_other_model():
    spec = WorkloadSpec(model="gpt-tiny", lora_rank=8)
    lora = made(workload=spec, facts=facts(parameter_count=3_100_000, tokens_per_sample=128))
    assert not models_differ([made(), lora])


def test_two_profiles_are_needed():
    with pytest.raises(UsageError, match="at least two profiles"):
        compared(made())
    with pytest.raises(UsageError, match="not both"):
        compared(made(), made(), target_batch=8, target_tokens=9)


def test_only_what_may_change_the_speed_differs():
    one = made(workload=WorkloadSpec(model="gpt-tiny", seed=1))
    two = made(workload=WorkloadSpec(model="gpt-tiny", seed=2), created_at="2027-01-01T00:00:00Z")
    assert differences([one, two]) == ()
    # 128 is the default of the other.
    given_length = made(workload=WorkloadSpec(model="gpt-tiny", seq_len=128))
    assert differences([one, given_length]) == ()


def test_differences_are_texts():
    spec = WorkloadSpec(
        model="gpt-tiny",
        precision=Precision.AMP_BF16,
        compile=True,
        clip_norm=0.5,
        optimizer_options={"lr": 0.001, "fused": True},
        freeze=("a.*", "b.*"),
        activation_checkpointing="full",
    )
    base = made()
    environment = replace(base.environment, torch="2.14.1", settings={"threads": 4})
    other = made(
        workload=spec,
        device=device(threads=4),
        environment=environment,
        plan=replace(base.plan, memory_limit_bytes=2**30),
    )
    found = {d.name: d.values for d in differences([base, other])}
    assert found == {
        "precision": ("fp32", "amp-bf16"),
        "optimizer options": ("none", "fused=yes, lr=0.001"),
        "clip norm": ("none", "0.5"),
        "checkpointing": ("none", "full"),
        "freeze": ("none", "a.*, b.*"),
        "compile": ("no", "yes"),
        "threads": ("none", "4"),
        "memory limit": ("none", "1.00 GiB"),
        "torch": ("2.13.0", "2.14.1"),
    }


def test_labels_say_what_differs_in_few_words():
    def names(*profiles):
        return labels([(f"n{i}", p) for i, p in enumerate(profiles)])

    base = made()
    assert names(base) == ("gpt-tiny",)
    compiled = made(workload=WorkloadSpec(model="gpt-tiny", compile=True))
    assert names(base, compiled) == ("compile no", "compile yes")
    other = made(name="B")
    both = made(name="B", workload=WorkloadSpec(model="gpt-tiny", precision=Precision.BF16))
    assert names(base, other, both) == ("test CPU, fp32", "B, fp32", "B, bf16")
    assert names(base, base) == ("n0", "n1")
    assert labels([("x", base), ("x", base)]) == ("1: x", "2: x")
    files = [made(workload=WorkloadSpec(model=f"some/where/{n}.py:make")) for n in ("a", "b")]
    assert names(*files) == ("a.py:make", "b.py:make")
    same = [made(workload=WorkloadSpec(model=f"{n}/a.py:make")) for n in ("x", "y")]
    assert names(*same) == ("x/a.py:make", "y/a.py:make")


def test_the_document_is_plain_and_complete():
    found = compared(made(), failing(), made(0.02, name="b"), target_batch=32)
    document = json.loads(json.dumps(comparison_document(found), allow_nan=False))
    assert document["schema"] == 1
    assert (document["target_batch"], document["unit"]) == (32, "sample")
    first, none, third = document["profiles"]
    assert first["micro_batch_size"] == 16
    assert first["ratio"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert first["workload"]["precision"] == "fp32"
    assert none["micro_batch_size"] is None
    assert none["problem"].startswith("no micro-batch size of gpt-tiny fits")
    assert third["verdict"] == found.profiles[2].verdict
    assert document["differences"][0]["name"] == "device"
    assert [n["code"] for n in document["notes"]] == ["no-answer"]


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (1.0, "1.00"),
        (1.8, "1.80"),
        (0.5249, "0.525"),
        (12.34, "12.3"),
        (123.4, "123"),
        (5e3, "5,000"),
    ],
)
def test_ratios_have_three_digits(ratio, text):
    assert three_digits(ratio) == text


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-4, 10), st.floats(1e-4, 10), st.floats(0, 0.5), st.floats(0, 0.5))
def test_a_ratio_and_its_reverse_agree(a, b, noise_a, noise_b):
    one, two = made(a, half_width=noise_a), made(b, name="b", half_width=noise_b)
    forth = compared(one, two).profiles[1].ratio
    back = compared(two, one).profiles[1].ratio
    assert forth.value * back.value == pytest.approx(1)
    assert 0 <= forth.low <= forth.value <= forth.high

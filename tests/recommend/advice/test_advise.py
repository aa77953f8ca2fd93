"""Advice on plans: what is said, to whom, with which source, and what is left unsaid."""

from __future__ import annotations

import pytest
from recommend_profiles import affine, curve_profile, facts, predicted_profile

from bsprof.errors import UsageError
from bsprof.recommend.advice import Situation
from bsprof.recommend.plan import recommend_plan
from bsprof.records import Mode, Note, Precision, WorkloadSpec

SIZES = (1, 2, 4, 8, 16, 32)


def advice(
    target: int = 256,
    world_size: int = 1,
    *,
    optimizer: str = "AdamW",
    situation: Situation | None = None,
    batch_norm_modules: int = 0,
    **spec: object,
) -> dict[str, Note]:
    profile = curve_profile(
        SIZES,
        affine(0.02, 0.005),
        workload=WorkloadSpec(model="gpt-tiny", **spec),
        facts=facts(optimizer=optimizer, batch_norm_modules=batch_norm_modules),
    )
    answer = recommend_plan(
        profile, target_batch=target, world_size=world_size, situation=situation
    )
    return {note.code: note for note in answer.advice}


def test_no_change_of_batch_needs_none():
    found = advice(situation=Situation(current_batch=256))
    assert found["learning-rate"].message.startswith("None needed")
    assert not {"betas", "weight-decay", "schedule-rescaled", "momentum"} & found.keys()


def test_nothing_is_said_of_rates_without_the_batch_they_were_tuned_at():
    found = advice()
    assert "learning-rate" not in found
    assert "--current-batch" in found["accumulation-worth"].hint


def test_sgd():
    found = advice(
        optimizer="SGD", situation=Situation(current_batch=64), optimizer_options={"lr": 0.1}
    )
    assert "times 4.00 (0.1 -> 0.4)" in found["learning-rate"].message
    assert "1706.02677" in found["learning-rate"].message
    assert "5 epochs" in found["learning-rate"].hint
    assert "0.9" in found["momentum"].message
    assert "betas" not in found


def test_sgd_beyond_what_was_shown():
    message = advice(16384, optimizer="SGD", situation=Situation(current_batch=64))[
        "learning-rate"
    ].message
    assert "16,384 is beyond that" in message


def test_sgd_with_a_noise_scale_gives_a_range():
    found = advice(optimizer="SGD", situation=Situation(current_batch=64, noise_scale=64.0))
    assert "times 1.60" in found["learning-rate"].message  # (1 + 1) / (1 / 4 + 1)
    assert "Range: 1.60 to 4.00" in found["learning-rate"].message
    assert "2505.23971" in found["above-noise-scale"].message


def test_adamw():
    found = advice(situation=Situation(current_batch=64))
    assert "times 2.00" in found["learning-rate"].message
    assert "2205.10287" in found["learning-rate"].message
    assert "2,000 optimizer steps" in found["learning-rate"].hint
    assert "second-hand" in found["betas"].message
    assert "times 2.00" in found["weight-decay"].message
    assert "4.00 times fewer optimizer steps" in found["schedule-rescaled"].message


def test_adam_has_no_decoupled_weight_decay():
    assert "weight-decay" not in advice(optimizer="Adam", situation=Situation(current_batch=64))


def test_betas_beyond_the_rule_are_said_to_be():
    found = advice(1024, situation=Situation(current_batch=64))
    assert "holds below 10 times" in found["betas"].message


def test_other_optimizers_get_no_rule():
    found = advice(optimizer="Lion", situation=Situation(current_batch=64))
    assert "No rule with evidence" in found["learning-rate"].message


def test_batch_norm():
    found = advice(256, 2, batch_norm_modules=3)
    assert "momentum 0.026 instead of 0.1" in found["batch-norm-momentum"].message  # 4 pieces
    assert "SyncBatchNorm" in found["batch-norm-freeze"].message
    assert "batch-norm-momentum" not in advice(32, batch_norm_modules=3)


@pytest.mark.parametrize(
    ("precision", "code"),
    [
        (Precision.BF16, "reduced-precision-accumulation"),
        (Precision.FP16, "reduced-precision-accumulation"),
        (Precision.AMP_FP16, "loss-scaling"),
    ],
)
def test_precision(precision, code):
    assert code in advice(precision=precision)
    assert code not in advice(32, precision=precision)  # one piece: nothing is summed
    assert code not in advice()


def test_clipping_is_once():
    assert "1812.06162" in advice(clip_norm=1.0)["clip-at-boundary"].message
    assert "clip-at-boundary" not in advice()


def test_accumulation_worth_says_what_a_free_batch_would_have():
    message = advice()["accumulation-worth"].message
    assert "32 samples, would already have" in message
    assert "2507.07101" in message
    assert not {"accumulation-worth", "pieces-apart"} & advice(32).keys()


def test_a_prediction_without_times_claims_no_throughput():
    answer = recommend_plan(predicted_profile(), target_batch=2048)
    codes = {note.code for note in answer.advice}
    assert "pieces-apart" in codes
    assert "accumulation-worth" not in codes


def test_inference_gets_none():
    profile = curve_profile(SIZES, affine(0.02, 0.005), mode=Mode.INFER)
    assert recommend_plan(profile, target_batch=256).advice == ()


@pytest.mark.parametrize("bad", [{"current_batch": 0}, {"noise_scale": 0.0}])
def test_what_cannot_be_is_refused(bad):
    with pytest.raises(UsageError):
        Situation(**bad)


def test_every_rule_on_rates_has_a_source():
    for optimizer in ("SGD", "AdamW"):
        found = advice(optimizer=optimizer, situation=Situation(current_batch=64, noise_scale=99.0))
        for code in ("learning-rate", "betas", "weight-decay", "momentum", "above-noise-scale"):
            if code in found:
                text = found[code].message
                assert any(word in text for word in (".", "adaptdl")), code
                assert "(" in text, code

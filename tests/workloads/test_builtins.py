from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from bsprof.errors import UsageError
from bsprof.records import Mode, WorkloadSpec
from bsprof.workloads.builtins.attention import SelfAttention
from bsprof.workloads.names import BUILTINS, builtin_names
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import build_training

CPU = torch.device("cpu")
SMALL: dict[str, dict[str, Any]] = {"gpt-tiny": {"seq_len": 8}, "encoder-tiny": {"seq_len": 8}}
ATTENDING = ("encoder-tiny", "gpt-tiny", "vit-tiny")


@pytest.mark.parametrize("model", builtin_names())
def test_learns_one_batch_by_heart(model: str) -> None:
    options = {"lr": 0.003}
    spec = WorkloadSpec(model=model, optimizer_options=options, **SMALL.get(model, {}))
    workload = resolve(spec)
    training = build_training(spec, workload, "cpu")
    batch = training.make_batch(4)
    first = float(workload.loss(training.model, batch).detach())
    for _ in range(12):
        training.micro_step(batch, 1.0)
        assert training.optimizer_step()
        training.zero_grad()
    assert all(p.requires_grad for p in training.model.parameters())
    assert float(workload.loss(training.model, batch).detach()) < 0.7 * first


@pytest.mark.parametrize("model", builtin_names())
def test_every_parameter_gets_a_gradient(model: str) -> None:
    spec = WorkloadSpec(model=model, **SMALL.get(model, {}))
    training = build_training(spec, resolve(spec), "cpu")
    training.micro_step(training.make_batch(2), 1.0)
    without = [name for name, p in training.model.named_parameters() if p.grad is None]
    assert without == []


@pytest.mark.parametrize("model", builtin_names())
def test_batches_are_random_fresh_and_repeatable(model: str) -> None:
    spec = WorkloadSpec(model=model, **SMALL.get(model, {}))
    one, again = resolve(spec), resolve(spec)
    inputs, labels = one.batch(6, CPU)
    assert inputs.shape[0] == labels.shape[0] == 6
    assert inputs.float().std() > 0
    assert not torch.equal(inputs, one.batch(6, CPU)[0])
    assert torch.equal(inputs, again.batch(6, CPU)[0])
    other = resolve(WorkloadSpec(model=model, seed=1, **SMALL.get(model, {})))
    assert not torch.equal(inputs, other.batch(6, CPU)[0])


@pytest.mark.parametrize("model", builtin_names())
def test_samples_do_not_mix_in_evaluation(model: str) -> None:
    spec = WorkloadSpec(model=model, mode=Mode.INFER, **SMALL.get(model, {}))
    training = build_training(spec, resolve(spec), "cpu")
    inputs, _ = training.make_batch(3)
    with torch.no_grad():
        together = training.model(inputs)
        alone = torch.cat([training.model(inputs[i : i + 1]) for i in range(3)])
    assert torch.allclose(together, alone, atol=1e-5)


def test_random_start_has_the_loss_of_guessing() -> None:
    for model, classes in (("gpt-tiny", 1000), ("encoder-tiny", 1000)):
        spec = WorkloadSpec(model=model, mode=Mode.INFER, **SMALL[model])
        workload = resolve(spec)
        training = build_training(spec, workload, "cpu")
        with torch.no_grad():
            loss = workload.loss(training.model, training.make_batch(8))
        assert float(loss) == pytest.approx(torch.log(torch.tensor(classes)).item(), rel=0.05)


def test_gpt_sees_no_future_and_predicts_the_next_token() -> None:
    spec = WorkloadSpec(model="gpt-tiny", seq_len=8, mode=Mode.INFER)
    training = build_training(spec, resolve(spec), "cpu")
    tokens, targets = training.make_batch(2)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    changed = tokens.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 1000
    with torch.no_grad():
        before, after = training.model(tokens), training.model(changed)
    assert torch.allclose(before[:, :5], after[:, :5], atol=1e-5)
    assert not torch.allclose(before[:, 5:], after[:, 5:], atol=1e-3)


def test_encoder_masks_some_tokens_and_scores_only_those() -> None:
    spec = WorkloadSpec(model="encoder-tiny")
    workload = resolve(spec)
    tokens, labels = workload.batch(64, CPU)
    scored = labels != -100
    assert torch.equal(scored, tokens == 0)
    assert 0.13 < scored.float().mean() < 0.18
    assert workload.count is not None
    assert workload.count((tokens, labels)) == int(scored.sum())


@pytest.mark.parametrize("causal", [False, True])
def test_eager_attention_equals_the_fused_one(causal: bool) -> None:
    torch.manual_seed(0)
    fused = SelfAttention(32, 4, causal=causal, dropout=0.1).eval()
    eager = SelfAttention(32, 4, causal=causal, dropout=0.1, kind="eager").eval()
    eager.load_state_dict(fused.state_dict())
    x = torch.randn(2, 6, 32)
    assert torch.allclose(fused(x), eager(x), atol=1e-6)


def test_self_attention_equals_pytorchs_own() -> None:
    torch.manual_seed(0)
    ours = SelfAttention(32, 4, causal=False, dropout=0.0)
    theirs = nn.MultiheadAttention(32, 4, batch_first=True)
    theirs.load_state_dict(
        {
            "in_proj_weight": ours.qkv.weight,
            "in_proj_bias": ours.qkv.bias,
            "out_proj.weight": ours.out.weight,
            "out_proj.bias": ours.out.bias,
        }
    )
    x = torch.randn(2, 6, 32)
    assert torch.allclose(ours(x), theirs(x, x, x, need_weights=False)[0], atol=1e-6)


@pytest.mark.parametrize("model", ATTENDING)
def test_attention_option_has_an_effect(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    fused = F.scaled_dot_product_attention

    def counted(*args: Any, **more: Any) -> Any:
        calls.append(1)
        return fused(*args, **more)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    for attention, count in (("sdpa", 4), ("eager", 0)):
        calls.clear()
        spec = WorkloadSpec(model=model, attention=attention, **SMALL.get(model, {}))
        training = build_training(spec, resolve(spec), "cpu")
        training.micro_step(training.make_batch(1), 1.0)
        assert len(calls) == count


@pytest.mark.parametrize(("model", "size"), [("convnet", 20), ("vit-tiny", 16)])
def test_image_size_has_an_effect(model: str, size: int) -> None:
    spec = WorkloadSpec(model=model, image_size=size)
    training = build_training(spec, resolve(spec), "cpu")
    batch = training.make_batch(2)
    assert batch[0].shape == (2, 3, size, size)
    training.micro_step(batch, 1.0)


@pytest.mark.parametrize("model", ["gpt-tiny", "encoder-tiny"])
def test_seq_len_has_an_effect(model: str) -> None:
    spec = WorkloadSpec(model=model, seq_len=16)
    training = build_training(spec, resolve(spec), "cpu")
    assert training.facts.tokens_per_sample == 16
    assert training.make_batch(2)[0].shape == (2, 16)


@pytest.mark.parametrize(("model", "size"), [("convnet", 3), ("vit-tiny", 30), ("vit-tiny", 0)])
def test_image_size_that_does_not_fit_is_refused(model: str, size: int) -> None:
    with pytest.raises(UsageError, match=f"--image-size {size}"):
        resolve(WorkloadSpec(model=model, image_size=size))


def test_summaries_are_one_line() -> None:
    assert all("\n" not in b.summary and len(b.summary) < 80 for b in BUILTINS.values())

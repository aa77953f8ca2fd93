from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from bsprof.errors import UsageError
from bsprof.records import Mode, Scalar, WorkloadSpec
from bsprof.workloads.families.stochastic_depth import StochasticDepth
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import build_training

CPU = torch.device("cpu")
SMALL: dict[str, Scalar] = {
    "layers": 2,
    "width": 32,
    "heads": 2,
    "mlp_width": 64,
    "image_size": 32,
    "classes": 10,
}


def spec_of(name: str, *, mode: Mode = Mode.TRAIN, attention: str | None = None) -> WorkloadSpec:
    return WorkloadSpec(model=name, model_options=SMALL, mode=mode, attention=attention)


def test_eager_attention_equals_sdpa() -> None:
    logits = []
    for attention in ("sdpa", "eager"):
        spec = spec_of("vit-b-16", mode=Mode.INFER, attention=attention)
        training = build_training(spec, resolve(spec), "cpu")
        with torch.no_grad():
            logits.append(training.model(training.make_batch(3)[0]))
    torch.testing.assert_close(logits[0], logits[1])


@pytest.mark.parametrize(("attention", "calls"), [(None, 2), ("sdpa", 2), ("eager", 0)])
def test_attention_option_has_an_effect(
    attention: str | None, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []
    fused = F.scaled_dot_product_attention
    monkeypatch.setattr(
        F,
        "scaled_dot_product_attention",
        lambda *args, **more: ran.append(1) or fused(*args, **more),
    )
    spec = spec_of("vit-s-16", attention=attention)
    training = build_training(spec, resolve(spec), "cpu")
    training.micro_step(training.make_batch(1), 1.0)
    assert len(ran) == calls


def test_positions_are_for_the_image_size() -> None:
    with torch.device("meta"):
        model = resolve(WorkloadSpec(model="vit-l-32", image_size=384)).model()
    assert model.get_parameter("positions").shape == (1, 12 * 12 + 1, 1024)


def test_position_of_a_patch_matters() -> None:
    spec = spec_of("vit-s-16", mode=Mode.INFER)
    model = build_training(spec, resolve(spec), "cpu").model
    images = torch.randn(1, 3, 32, 32)
    swapped = torch.cat([images[..., 16:], images[..., :16]], dim=-1)
    with torch.no_grad():
        assert not torch.allclose(model(images), model(swapped), atol=1e-4)


def test_distilled_model_has_two_answers_in_training_and_their_mean_in_evaluation() -> None:
    spec = spec_of("deit-small-distilled-16")
    training = build_training(spec, resolve(spec), "cpu")
    training.model.apply(_undropped)
    images = training.make_batch(3)[0]
    with torch.no_grad():
        both = training.model(images)
        mean = training.model.eval()(images)
    assert both.shape == (3, 2, 10)
    torch.testing.assert_close(mean, both.mean(dim=1))
    assert not torch.allclose(both[:, 0], both[:, 1])


def _undropped(module: torch.nn.Module) -> None:
    if isinstance(module, StochasticDepth):
        module.rate = 0.0


def test_each_head_of_a_distilled_model_learns_from_its_own_labels() -> None:
    workload = resolve(spec_of("deit-tiny-distilled-16"))
    batch = workload.batch(64, CPU)
    assert len(batch) == 3
    assert not torch.equal(batch[1], batch[2])
    logits = torch.randn(64, 2, 10)
    expected = F.cross_entropy(logits[:, 0], batch[1]) + F.cross_entropy(logits[:, 1], batch[2])
    loss = workload.loss(lambda _images: logits, batch)  # type: ignore[arg-type]
    torch.testing.assert_close(loss, expected / 2)
    of_mean = workload.loss(lambda _images: logits.mean(dim=1), batch)  # type: ignore[arg-type]
    torch.testing.assert_close(of_mean, F.cross_entropy(logits.mean(dim=1), batch[1]))


def test_a_width_that_heads_cannot_share_is_refused() -> None:
    with pytest.raises(UsageError, match="vit-b-16 needs a width that is a multiple of its heads"):
        resolve(WorkloadSpec(model="vit-b-16", model_options={"heads": 7}))


def test_unknown_attention_is_refused() -> None:
    with pytest.raises(UsageError, match="flash"):
        resolve(WorkloadSpec(model="vit-b-16", attention="flash"))

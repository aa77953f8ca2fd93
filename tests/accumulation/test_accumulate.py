from __future__ import annotations

import plain_sums
import pytest
import torch
from torch import nn

import bsprof
from bsprof.accumulation.plan_file import plan_of_pieces
from bsprof.errors import UsageError

TARGETS = [8, 9, 13, 24]
PIECES = {8: [4, 4], 9: [4, 4, 1], 13: [5, 5, 3], 24: [8, 8, 8]}


def accumulator(pieces, *, model=None, loss=plain_sums.sample_mean, **options):
    model = model or plain_sums.tagger()
    optimizer = options.pop("optimizer", None) or torch.optim.SGD(model.parameters(), lr=0.1)
    step = bsprof.accumulate(plan_of_pieces([pieces]), model, optimizer, loss=loss, **options)
    return model, step


@pytest.mark.parametrize("weigh", plain_sums.LOSSES)
@pytest.mark.parametrize("target", TARGETS)
def test_the_gradient_is_that_of_the_whole_batch(target, weigh):
    loss = plain_sums.LOSSES[weigh]
    whole = plain_sums.batch(target)
    model, step = accumulator(PIECES[target], loss=loss, weigh=weigh)
    share = step.gradients(whole)
    wanted = plain_sums.whole_gradients(loss, whole)
    found = plain_sums.gradients(model)
    assert plain_sums.relative_difference(found, wanted) < plain_sums.TOLERANCE
    assert float(share) == pytest.approx(
        float(loss(plain_sums.tagger(), whole).detach()), abs=1e-14
    )


def test_weights_that_do_not_fit_the_loss_do_differ():
    whole = plain_sums.batch(13)
    wanted = plain_sums.whole_gradients(plain_sums.token_mean, whole)
    for weigh in ("samples", "equal"):
        model, step = accumulator(PIECES[13], loss=plain_sums.token_mean, weigh=weigh)
        step.gradients(whole)
        found = plain_sums.gradients(model)
        assert plain_sums.relative_difference(found, wanted) > 1e-3


def test_a_run_of_updates_is_that_of_whole_batches():
    model, step = accumulator(
        [3, 3, 1],
        clip_norm=0.05,
        optimizer=None,
    )
    whole_model = plain_sums.tagger()
    optimizer = torch.optim.SGD(whole_model.parameters(), lr=0.1)
    for seed in range(5):
        batch = plain_sums.batch(7, seed=seed)
        update = step(batch)
        plain_sums.sample_mean(whole_model, batch).backward()
        norm = nn.utils.clip_grad_norm_(whole_model.parameters(), 0.05)
        optimizer.step()
        optimizer.zero_grad()
        assert update.gradient_norm is not None
        assert float(update.gradient_norm) == pytest.approx(float(norm), rel=1e-12)
        assert (update.step, update.stepped) == (seed + 1, True)
    for found, wanted in zip(model.parameters(), whole_model.parameters(), strict=True):
        assert torch.allclose(found, wanted, rtol=1e-12, atol=1e-14)
        assert found.grad is None


def test_the_schedule_counts_optimizer_steps_and_a_skipped_step_is_no_step():
    model = plain_sums.tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    poison = {"now": False}

    def loss(model, batch):
        value = plain_sums.sample_mean(model, batch)
        return value * float("inf") if poison["now"] else value

    _, step = accumulator(
        [2, 2, 2],
        model=model,
        loss=loss,
        optimizer=optimizer,
        scheduler=scheduler,
        scaler=scaler,
        clip_norm=1.0,
    )
    assert step(plain_sums.batch(6)).stepped
    assert optimizer.param_groups[0]["lr"] == 0.5
    poison["now"] = True
    before = [p.detach().clone() for p in model.parameters()]
    assert not step(plain_sums.batch(6)).stepped
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert scaler.get_scale() == 2.0**9
    assert all(map(torch.equal, before, model.parameters()))


def test_a_scaled_gradient_is_unscaled_before_it_is_clipped():
    whole = plain_sums.batch(6)
    model = plain_sums.tagger()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    _, step = accumulator([4, 2], model=model, scaler=scaler, clip_norm=1e9)
    norm = step(whole).gradient_norm
    wanted = plain_sums.whole_gradients(plain_sums.sample_mean, whole)
    total = sum(float(g.square().sum()) for g in wanted.values()) ** 0.5
    assert float(norm) == pytest.approx(total, rel=1e-12)


def test_the_last_window_of_an_epoch_is_weighed_by_what_is_there():
    model, step = accumulator([4, 4, 4])
    for samples in (1, 3, 10, 11):
        whole = plain_sums.batch(samples, seed=samples)
        step.gradients(whole, partial=True)
        wanted = plain_sums.whole_gradients(plain_sums.sample_mean, whole)
        found = plain_sums.gradients(model)
        assert plain_sums.relative_difference(found, wanted) < plain_sums.TOLERANCE
    with pytest.raises(UsageError, match="not one of the plan: 11 samples"):
        step(plain_sums.batch(11))
    with pytest.raises(UsageError, match="no sample in the last window"):
        step.gradients(plain_sums.batch(0), partial=True)


def test_pieces_that_are_cut_already():
    whole = plain_sums.batch(5)
    model, step = accumulator([3, 2])
    cut = [{k: v[:3] for k, v in whole.items()}, {k: v[3:] for k, v in whole.items()}]
    step.gradients_of_pieces(cut)
    wanted = plain_sums.whole_gradients(plain_sums.sample_mean, whole)
    assert plain_sums.relative_difference(plain_sums.gradients(model), wanted) < 1e-12
    with pytest.raises(UsageError, match="sizes 2, 3, planned 3, 2"):
        step.gradients_of_pieces(cut[::-1])


def test_a_piece_without_a_token_adds_nothing():
    whole = plain_sums.batch(6)
    whole["labels"][2:4] = plain_sums.IGNORED
    model, step = accumulator([2, 2, 2], loss=plain_sums.token_mean, weigh="tokens")
    step.gradients(whole)
    wanted = plain_sums.whole_gradients(plain_sums.token_mean, whole)
    assert plain_sums.relative_difference(plain_sums.gradients(model), wanted) < 1e-12
    whole["labels"][:] = plain_sums.IGNORED
    with pytest.raises(UsageError, match="nothing to average over"):
        step.gradients(whole)


def test_a_checkpoint_is_taken_up_under_the_same_plan_only():
    _, step = accumulator([2, 2])
    step(plain_sums.batch(4))
    state = step.state_dict()
    _, again = accumulator([2, 2])
    again.load_state_dict(state)
    assert again.step == 1
    _, other = accumulator([2, 2, 1], weigh="equal")
    with pytest.raises(UsageError) as raised:
        other.load_state_dict(state)
    assert raised.value.found.splitlines() == [
        "samples per update: 4 -> 5",
        "micro-steps per update: 2 -> 3",
        "weights: by samples -> by equal",
    ]
    _, order = accumulator([3, 1])
    _, same = accumulator([1, 3])
    with pytest.raises(UsageError, match="the order of the pieces"):
        same.load_state_dict(order.state_dict())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weigh": "words"}, "cannot weigh pieces by 'words'"),
        ({"count": len}, "count has no effect with weigh='samples'"),
        ({"clip_norm": 0.0}, "clipped to a norm of 0"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        accumulator([2], **options)


def test_a_loss_of_several_numbers_and_a_plateau_scheduler_are_refused():
    _, step = accumulator([2, 2], loss=lambda model, batch: model(batch["input_ids"]))
    with pytest.raises(UsageError, match="must be one number"):
        step(plain_sums.batch(4))
    optimizer = torch.optim.SGD(plain_sums.tagger().parameters(), lr=0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(UsageError, match="needs a metric"):
        accumulator([2], scheduler=plateau)
    with pytest.raises(UsageError, match="nothing is watched"):
        step.saved()


def test_a_plan_for_several_ranks_is_refused_on_one():
    model = plain_sums.tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = plan_of_pieces([[2], [2]])
    with pytest.raises(UsageError, match="for 2 ranks, and this run has 1"):
        bsprof.accumulate(plan, model, optimizer, loss=plain_sums.sample_mean)

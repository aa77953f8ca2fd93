from __future__ import annotations

import json

import plain_sums
import pytest
import torch
from torch import nn

import bsprof
from bsprof.accumulation.noise import noise_parts
from bsprof.accumulation.plan_file import plan_of_pieces
from bsprof.errors import OutputError, UsageError


def regression(samples, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 6, generator=generator, dtype=torch.float64)
    noise = torch.randn(samples, 1, generator=generator, dtype=torch.float64)
    return x, x.sum(1, keepdim=True) + noise


def squares(model, batch):
    return 0.5 * (model(batch[0]) - batch[1]).square().mean()


def accumulator(watch, *, pieces=(4, 4, 4, 4), lr=0.0, **options):
    torch.manual_seed(0)
    model = nn.Linear(6, 1, bias=False).double()
    nn.init.constant_(model.weight, 0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    plan = plan_of_pieces([list(pieces)])
    step = bsprof.accumulate(plan, model, optimizer, loss=squares, watch=watch, **options)
    return model, step


@pytest.mark.parametrize("pieces", [(4, 4, 4, 4), (7, 5, 3, 1)])
def test_the_noise_scale_is_that_of_the_closed_form(pieces):
    # Gaussian inputs, unit covariance: tr(S) = d (|off|^2 + 1) + |off|^2, |G|^2 = |off|^2.
    off = 6 * 0.5**2
    wanted = (6 * (off + 1) + off) / off
    _, step = accumulator(bsprof.Watch(noise_scale=True, window=2000), pieces=pieces)
    for seed in range(600):
        step(regression(16, seed))
    step.flush()
    seen = step.watcher.newest
    assert seen is not None
    assert seen.noise_scale == pytest.approx(wanted, rel=0.2)
    assert seen.gradient_variance == pytest.approx(6 * (off + 1) + off, rel=0.1)


def test_a_scaler_and_clipping_do_not_change_the_noise():
    seen = []
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    for options in ({}, {"scaler": scaler, "clip_norm": 0.01}):
        _, step = accumulator(bsprof.Watch(noise_scale=True), **options)
        for seed in range(40):
            step(regression(16, seed))
        step.flush()
        seen.append(step.watcher.newest)
    assert seen[0].noise_scale is not None
    assert seen[1].noise_scale == pytest.approx(seen[0].noise_scale, rel=1e-6)
    assert seen[1].gradient_norm == pytest.approx(seen[0].gradient_norm, rel=1e-6)


def test_too_few_pieces_give_no_noise_scale():
    _, step = accumulator(bsprof.Watch(noise_scale=True))
    for seed in range(15):
        step(regression(16, seed))
    step.flush()
    assert step.watcher.newest.noise_scale is None
    with pytest.raises(ValueError, match="there is one"):
        noise_parts(local=1.0, total=1.0, per_piece=0.25, per_update=0.25)


def test_the_log_has_a_line_for_each_update(tmp_path):
    path = tmp_path / "run.jsonl"
    model, step = accumulator(bsprof.Watch(log=path), lr=0.1)
    losses = []
    for seed in range(3):
        batch = regression(16, seed)
        losses.append(float(squares(model, batch).detach()))
        step(batch)
    assert len(path.read_text().splitlines()) == 2  # the last one is still on the device
    step.flush()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert [line["loss"] for line in lines] == pytest.approx(losses)
    assert all(line["gradient_norm"] > 0 and line["notes"] == [] for line in lines)


def test_a_run_that_breaks_is_told_with_the_checkpoint_to_go_back_to():
    notes = []
    model, step = accumulator(bsprof.Watch(on_note=notes.append), lr=0.01)
    for seed in range(6):
        step(regression(16, seed))
        if seed in (1, 3):
            step.saved()
    x, y = regression(16, 6)
    step((x * float("inf"), y))
    step.saved()
    step.flush()
    [note] = notes
    assert note.code == "not-finite"
    assert note.hint.endswith("last good update: 6, saved: 4")
    assert step.watcher.rollback_step == 4
    assert not torch.isfinite(model.weight).all()
    state = step.state_dict()
    _, again = accumulator(bsprof.Watch())
    again.load_state_dict(state)
    assert again.watcher.rollback_step == 4


def test_what_cannot_be_watched_is_refused(tmp_path):
    with pytest.raises(UsageError, match="a window of 3"):
        accumulator(bsprof.Watch(window=3))
    with pytest.raises(OutputError, match="cannot write the log"):
        accumulator(bsprof.Watch(log=tmp_path / "none" / "run.jsonl"))


def test_watching_leaves_the_gradient_as_it_is():
    whole = plain_sums.batch(7)
    model = plain_sums.tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = bsprof.Watch(noise_scale=True)
    plan = plan_of_pieces([[3, 3, 1]])
    step = bsprof.accumulate(plan, model, optimizer, loss=plain_sums.sample_mean, watch=watch)
    step.gradients(whole)
    wanted = plain_sums.whole_gradients(plain_sums.sample_mean, whole)
    found = plain_sums.gradients(model)
    assert plain_sums.relative_difference(found, wanted) < plain_sums.TOLERANCE

"""Whole steps for fits: those that may fit, with the works of all their parts."""

from __future__ import annotations

from bsprof.accounting.work import WorkClass
from bsprof.records import WorkloadSpec
from bsprof.validate.time import steps
from bsprof.validate.time.cases import TimeCase
from bsprof.validate.time.collect import TimeCollected


def case(row, *, training_row=True, **changes) -> TimeCase:
    return TimeCase(
        row=row,
        source="timm-3090",
        family="mlp",
        model="mlp",
        spec=WorkloadSpec(model="mlp"),
        device="rtx-3090",
        micro_batch=32,
        seconds=1e-3,
        training_row=training_row,
        **changes,
    )


def test_only_rows_that_may_fit_become_steps(tmp_path, monkeypatch):
    cases = (
        case("f.csv:2"),
        case("f.csv:3", training_row=False),
        case("f.csv:4", published_gmacs=(99.0,)),
    )
    collected = TimeCollected(cases=cases, skipped=(), assumptions={})
    monkeypatch.setattr(steps, "collect", lambda *_args, **_kwargs: collected)
    [found] = steps.step_rows(tmp_path, tmp_path / "traces")
    assert (found.name, found.device, found.seconds) == ("f.csv:2", "rtx-3090", 1e-3)
    classes = {work.work_class for work, _count in found.works}
    assert WorkClass.MATMUL in classes
    assert WorkClass.OPTIMIZER_FOREACH in classes

"""The small table of published times that travels with bsprof, each with its source."""

from __future__ import annotations

from bsprof.predict.software import software_of
from bsprof.predict.target import Protocol, ZeroGrad
from bsprof.records import Mode, Precision, WorkloadSpec
from bsprof.store import data_folder
from bsprof.validate.cited import options_of
from bsprof.validate.collect import sample
from bsprof.validate.rows import Row, read_rows
from bsprof.validate.time.cases import TimeCase, TimeQuantity
from bsprof.validate.time.collect import TimeCollected

FILE = "cited/time.csv"


def cited(*, limit: int | None = None) -> TimeCollected:
    """The cited figures as cases.

    Args:
        limit: At most so many models.
    """
    path = data_folder("calibration_data") / FILE
    cases = [_case(row) for row in read_rows(path)]
    assumptions: dict[str, tuple[str, ...]] = {}
    for case in cases:
        known = assumptions.get(case.source, ())
        assumptions[case.source] = tuple(dict.fromkeys([*known, *case.assumptions]))
    total = len({case.model for case in cases})
    usable = {case.row: case.source for case in cases}
    if limit is not None:
        drawn = sample(cases, limit)
        cases = [case for case in cases if case.model in drawn]
    return TimeCollected(
        cases=tuple(cases),
        skipped=(),
        judged=frozenset(usable),
        usable=usable,
        sampled_from=None if limit is None else total,
        assumptions=assumptions,
    )


def _case(row: Row) -> TimeCase:
    """One figure; its columns are the fields of the records."""
    milliseconds, size = row.number("milliseconds"), row.count("micro_batch")
    assert milliseconds is not None, row.name
    assert size is not None, row.name
    quantity = TimeQuantity(row.text("quantity"))
    world_size = row.count("world_size") or 1
    return TimeCase(
        row=row.name,
        source=row.text("source"),
        family=row.text("family"),
        model=row.text("published_as"),
        spec=WorkloadSpec(
            model=row.text("model"),
            model_options=options_of(row.text("model_options")),
            seq_len=row.count("seq_len"),
            image_size=row.count("image_size"),
            precision=Precision(row.text("precision")),
            optimizer=row.text("optimizer") or "sgd",
            optimizer_options=options_of(row.text("optimizer_options")),
            activation_checkpointing=row.text("activation_checkpointing") or "none",
            attention=row.text("attention") or None,
            channels_last=row.text("layout") == "NHWC",
            cudnn_benchmark=row.text("cudnn_benchmark") == "yes",
            compile=row.text("compile") == "yes",
            clip_norm=row.number("clip_norm"),
            mode=Mode.INFER if row.text("mode") == "infer" else Mode.TRAIN,
        ),
        device=row.text("device"),
        micro_batch=size,
        seconds=milliseconds / 1e3,
        quantity=quantity,
        accumulation_steps=row.count("accumulation_steps") or 1,
        world_size=world_size,
        parallel=row.text("parallel") or "none",
        software=software_of(torch=row.text("torch"), cuda=row.text("cuda") or None),
        protocol=Protocol(
            windows=tuple(int(n) for n in row.text("windows").split()),
            zero_grad=ZeroGrad(row.text("zero_grad") or "after_step"),
            set_to_none=row.text("set_to_none") != "no",
            fresh_batch=row.text("fresh_batch") == "yes",
        ),
        machine=f"{row.text('source')} {row.text('device')}",
        attention_kernel=row.text("attention_kernel"),
        assumptions=tuple(t.strip() for t in row.text("assumptions").split(";") if t.strip()),
    )

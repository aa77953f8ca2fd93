"""The small table of published figures that travels with bsprof, each with its source.

One figure a row, of models that the built-in catalogue builds, so that a validation runs anywhere.
"""

from __future__ import annotations

from bsprof.predict.software import software_of
from bsprof.predict.target import Protocol, ZeroGrad
from bsprof.records import Precision, Scalar, WorkloadSpec
from bsprof.store import data_folder
from bsprof.validate.cases import Bracket, Case, Kind, Measured
from bsprof.validate.collect import Collected, sample
from bsprof.validate.rows import GIB, Row, read_rows

FILE = "cited/memory.csv"


def cited(*, limit: int | None = None) -> Collected:
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
    if limit is not None:
        drawn = sample(cases, limit)
        cases = [case for case in cases if case.model in drawn]
    return Collected(
        cases=tuple(cases),
        skipped=(),
        sampled_from=None if limit is None else total,
        assumptions=assumptions,
    )


def _case(row: Row) -> Case:
    """One figure; its columns are the fields of the records, lists with spaces between."""
    gib, fits = row.number("gib"), row.count("fits")
    measured = bracket = None
    if gib is not None:
        measured = Measured(kind=Kind(row.text("quantity")), bytes=gib * GIB)
    if fits is not None:
        capacity = row.number("capacity_mib")
        bracket = Bracket(
            fits=fits,
            fails=row.count("fails"),
            capacity_bytes=None if capacity is None else round(capacity * 2**20),
        )
    size = row.count("micro_batch")
    assert size is not None, row.name
    return Case(
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
            optimizer=row.text("optimizer"),
            optimizer_options=options_of(row.text("optimizer_options")),
            activation_checkpointing=row.text("activation_checkpointing") or "none",
            lora_rank=row.count("lora_rank"),
            lora_targets=tuple(row.text("lora_targets").split()),
            channels_last=row.text("layout") == "NHWC",
            cudnn_benchmark=row.text("cudnn_benchmark") == "yes",
        ),
        device=row.text("device"),
        micro_batch=size,
        software=software_of(torch=row.text("torch"), cuda=row.text("cuda") or None),
        protocol=Protocol(
            windows=tuple(int(n) for n in row.text("windows").split()),
            zero_grad=ZeroGrad(row.text("zero_grad")),
            set_to_none=row.text("set_to_none") != "no",
            fresh_batch=row.text("fresh_batch") == "yes",
        ),
        measured=measured,
        bracket=bracket,
        assumptions=tuple(t.strip() for t in row.text("assumptions").split(";") if t.strip()),
    )


def options_of(text: str) -> dict[str, Scalar]:
    """Options from `key=value key=value`."""
    found: dict[str, Scalar] = {}
    for part in text.split():
        key, _, value = part.partition("=")
        if value in ("true", "false"):
            found[key] = value == "true"
            continue
        try:
            found[key] = int(value)
        except ValueError:
            try:
                found[key] = float(value)
            except ValueError:
                found[key] = value
    return found

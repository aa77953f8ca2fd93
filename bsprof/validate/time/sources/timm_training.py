"""timm's training benchmark on an RTX 3090: seconds of an update at the largest batch that fits.

Settings as for memory (`bsprof.validate.sources.timm_3090`). What is timed begins after gradients
are zeroed, but the device still does that then; it ends when the optimizer step has ended.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bsprof.validate.cases import Skipped
from bsprof.validate.rows import Row
from bsprof.validate.sources import timm_3090
from bsprof.validate.time.cases import TimeCase
from bsprof.validate.time.halves import fits
from bsprof.validate.time.places import place_of
from bsprof.validate.time.sources.published_gmacs import FILE as GMACS_FILE
from bsprof.validate.time.sources.published_gmacs import architecture, gmacs_by_model

NAME = "timm-3090"
FILE = timm_3090.FILE
DEVICE = timm_3090.DEVICE
ASSUMPTIONS = (
    *timm_3090.ASSUMPTIONS,
    "models whose names hash to one half fit coefficients, the others are scored",
)


IN_PLACE = re.compile(r"^tresnet_|_iabn$")
"""Models of timm whose activated batch norm ran in place, by a package that today's timm does
without: on channels last it was four times slower than on channels first."""


def read(rows: Sequence[Row], folder: Path) -> list[TimeCase | Skipped]:
    """Every row as an update."""
    path = place_of(folder, GMACS_FILE)
    gmacs = gmacs_by_model(path) if path is not None else {}
    return [_case(row, gmacs) for row in rows]


def _case(row: Row, gmacs: dict[tuple[str, int], tuple[float, ...]]) -> TimeCase | Skipped:
    found = timm_3090.read(row)
    milliseconds, size = row.number("step_ms"), row.count("image_size")
    if isinstance(found, Skipped):
        counts = not found.reason.startswith("another network")
        return Skipped(
            row=row.name, source=NAME, model=found.model, reason=found.reason, counts=counts
        )
    if milliseconds is None or size is None:
        return Skipped(row=row.name, source=NAME, model=found.model, reason="no time published")
    if IN_PLACE.search(found.model):
        reason = "batch norm in place, which today's timm does without"
        return Skipped(row=row.name, source=NAME, model=found.model, reason=reason)
    layout = "nhwc" if found.spec.channels_last else "nchw"
    name = architecture(found.model)
    return TimeCase(
        row=row.name,
        source=NAME,
        family=found.family,
        model=found.model,
        spec=found.spec,
        device=found.device,
        micro_batch=found.micro_batch,
        seconds=milliseconds / 1e3,
        software=found.software,
        protocol=found.protocol,
        machine="timm RTX 3090",
        set_name=f"timm-3090-{layout}",
        grouped_apart=True,
        published_gmacs=gmacs.get((name, size), ()),
        training_row=fits(name),
        assumptions=ASSUMPTIONS,
    )

"""Options that `check` and `noise` share: which workload is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from bsprof.cli.terminal import Terminal
from bsprof.records import WorkloadSpec

Model = Annotated[
    str,
    typer.Option(
        metavar="MODEL",
        help="Name (see `bsprof models`), timm:NAME, torchvision:NAME, hf:FOLDER-or-id, "
        "file.py:factory or package.module:factory.",
    ),
]
ModelOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Setting the model is built with; may be repeated."),
]
SeqLen = Annotated[int | None, typer.Option(metavar="N", min=1, help="Tokens per sample.")]
ImageSize = Annotated[int | None, typer.Option(metavar="N", min=1, help="Pixels per side.")]
Device = Annotated[
    str, typer.Option(metavar="auto|cpu|cuda[:N]", envvar="BSPROF_DEVICE", help="Where to run it.")
]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Let code that comes with an hf: model run.")
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Seeds weights and data.")]


def spec_of(
    model: str,
    *,
    model_option: list[str] | None,
    seq_len: int | None,
    image_size: int | None,
    trust_remote_code: bool,
    seed: int,
    optimizer: str | None = None,
    optimizer_option: list[str] | None = None,
) -> WorkloadSpec:
    """The workload that the options describe.

    Raises:
        UsageError: an option that is not KEY=VALUE.
    """
    from bsprof.cli import parse

    return WorkloadSpec(
        model=model,
        model_options=parse.key_values("--model-option", model_option or ()),
        seq_len=seq_len,
        image_size=image_size,
        optimizer=optimizer or "adamw",
        optimizer_options=parse.key_values("--optimizer-option", optimizer_option or ()),
        trust_remote_code=trust_remote_code,
        seed=seed,
    )


@contextmanager
def showing(terminal: Terminal, what: str) -> Iterator[None]:
    """Says on stderr what goes on, while it does."""
    from bsprof.cli.progress import progress
    from bsprof.measure.events import SweepEvent

    with progress(terminal) as listener:
        listener(SweepEvent(kind="start", text=what))
        yield

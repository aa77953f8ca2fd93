"""`bsprof calibrate`: measure this device, so that times can be predicted for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bsprof.cli.exits import Exit
from bsprof.cli.options import (
    DOCUMENT_SCHEMA,
    Color,
    Debug,
    Force,
    Json,
    Quiet,
    Verbose,
    json_wanted,
    terminal_of,
)

if TYPE_CHECKING:
    from bsprof.calibrate.measured import Measured
    from bsprof.cli.terminal import Terminal
    from bsprof.records.calibration import DeviceCalibration

EXAMPLE = "bsprof calibrate --device cpu"


def command(
    ctx: typer.Context,
    device: Annotated[
        str,
        typer.Option(metavar="auto|cpu|cuda[:N]", envvar="BSPROF_DEVICE", help="What to measure."),
    ] = "auto",
    time_budget: Annotated[str, typer.Option(metavar="1m", help="Time for the benchmarks.")] = "1m",
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Device file to write; - for stdout.",
            show_default="one that predictions read from then on",
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    debug: Debug = False,
    color: Color = "auto",
) -> None:
    """Measure this device's speed, for predictions.

    About a minute of short benchmarks that read no model. Do nothing else on the machine
    meanwhile. The file goes to the folder that BSPROF_CALIBRATION names, by default calibration/
    beside the store; predictions for this device use it from then on.
    """
    terminal = terminal_of(ctx, quiet=quiet, verbose=verbose, debug=debug, color=color)
    from bsprof.calibrate.device import calibration_of
    from bsprof.calibrate.run import measure_device
    from bsprof.cli.output import STDOUT, check_folder, check_output
    from bsprof.cli.progress import progress
    from bsprof.hardware.calibration import (
        device_calibration_path,
        dump_calibration,
        packaged_calibration,
        save_calibration,
    )
    from bsprof.hardware.catalogue import calibration_folder
    from bsprof.units import parse_seconds

    as_json = json_wanted(ctx, as_json=as_json, to_stdout=output == STDOUT)
    check_output(output, force=force)
    folder = calibration_folder()
    if output is None:
        check_folder(folder, f"cannot write calibrations to {folder}")
    base = packaged_calibration()  # a broken file of the user's own is just what may be replaced
    seconds = parse_seconds(time_budget)
    try:
        with progress(terminal) as listener:
            measured = measure_device(device, seconds=seconds, on_event=listener)
    except KeyboardInterrupt:
        terminal.urgent("interrupted; nothing was written, a former calibration stays as it is")
        raise typer.Exit(Exit.INTERRUPTED) from None
    found = calibration_of(measured, base)
    if output == STDOUT:
        terminal.answer(dump_calibration(found))
        return
    path = Path(output) if output is not None else device_calibration_path(folder, found.device)
    save_calibration(path, found)
    terminal.status(f"wrote {path}")
    if as_json:
        terminal.answer(_document(measured, found, path))
    else:
        _show(terminal, found)


def _document(measured: Measured, found: DeviceCalibration, path: Path) -> str:
    import json

    from bsprof.records.codec import to_json

    document = {
        "schema": DOCUMENT_SCHEMA,
        "file": str(path),
        "device": to_json(measured.device),
        "calibration": to_json(found),
        "benchmarks": len(measured.timed),
        "refused": dict(measured.refused),
        "failed": dict(measured.failed),
        "skipped": list(measured.skipped),
        "duration_s": measured.duration_s,
        "usual_pace_s": measured.usual_pace_s,
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _show(terminal: Terminal, found: DeviceCalibration) -> None:
    """What the device reaches at best, and what calls cost."""
    from bsprof.units import format_rate, format_seconds

    rows = [["device", found.device]]
    rows += [
        [f"{compute} matmul", format_rate(ceiling.value, "FLOP/s")]
        for compute, ceiling in found.flops_per_s.items()
    ]
    if found.bandwidth_bytes_per_s is not None:
        rows.append(["bandwidth", format_rate(found.bandwidth_bytes_per_s.value, "B/s")])
    costs = {
        "kernel launch": found.launch_s,
        "forward call": found.host_call_s,
        "backward call": found.host_backward_call_s,
    }
    rows += [
        [name, format_seconds(cost.value)]
        for name, cost in costs.items()
        if cost is not None and cost.value
    ]
    rows.append(["laws", str(len(found.laws))])
    terminal.table(("quantity", "value"), rows)

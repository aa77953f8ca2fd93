"""`bsprof devices`: the devices that can be predicted for: listed, and explained with sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from bsprof.cli.options import DOCUMENT_SCHEMA, Color, Debug, Json, Quiet, Verbose, terminal_of

if TYPE_CHECKING:
    from bsprof.cli.terminal import Terminal
    from bsprof.records import DeviceSpec, Quantity
    from bsprof.report.summary import Summary

EXAMPLE = "bsprof devices rtx-4090"

_FREE = "what a desktop or another program uses already is not free"
_COLUMNS = ("device", "memory", "bf16", "fp16", "bandwidth", "units", "capability")


def command(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A device as nvidia-smi or people write it, which is explained; or a part of "
            "names, which are listed.",
            show_default="all",
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    debug: Debug = False,
    color: Color = "auto",
) -> None:
    """List the devices that are known, or explain one.

    Every number comes with its source. Rates are dense peaks from data sheets; memory is what
    the driver hands out.
    """
    terminal = terminal_of(ctx, quiet=quiet, verbose=verbose, debug=debug, color=color)
    from bsprof.hardware.catalogue import devices

    found = devices() if name is None else _named(name)
    if as_json:
        _print_json(terminal, found)
    elif name is not None and len(found) == 1:
        from bsprof.cli.show import show_summary

        show_summary(terminal, _summary(found[0]))
    else:
        terminal.table(_COLUMNS, [_row(device) for device in found], numeric={1, 2, 3, 4, 5})


def _named(name: str) -> tuple[DeviceSpec, ...]:
    """The devices that bear the name, else those that have it in theirs.

    Raises:
        UnknownDevice: neither; near names are told.
    """
    from bsprof.hardware.catalogue import devices, devices_named, find_device

    part = name.strip().lower()
    listed = tuple(d for d in devices() if part in d.name or part in d.title.lower())
    return devices_named(name) or (listed if part else ()) or (find_device(name),)


def _row(device: DeviceSpec) -> tuple[str, ...]:
    from bsprof.units import format_bytes

    return (
        device.name,
        format_bytes(device.capacity_bytes.value),
        _rate(device.flops_per_s.get("bf16"), "FLOP/s"),
        _rate(device.flops_per_s.get("fp16"), "FLOP/s"),
        _rate(device.bandwidth_bytes_per_s, "B/s"),
        str(device.compute_units),
        _capability(device),
    )


def _rate(value: float | None, unit: str) -> str:
    from bsprof.units import format_rate

    return "none" if value is None else format_rate(value, unit)


def _capability(device: DeviceSpec) -> str:
    version = device.compute_capability
    return device.kind if version is None else f"{version[0]}.{version[1]}"


def _summary(device: DeviceSpec) -> Summary:
    from bsprof.report.summary import Summary
    from bsprof.report.tables import Column, Row, Table

    columns = (
        Column(key="number", title="number", meaning="What it is.", numeric=False),
        Column(key="value", title="value", meaning="How much.", numeric=False),
        Column(key="source", title="source", meaning="Who says so.", numeric=False),
    )
    return Summary(
        title=f"{device.name}: {device.title}",
        facts=(
            ("other names", ", ".join(device.aliases)),
            ("architecture", f"{device.architecture} ({device.kind})"),
            *(("note", note) for note in device.notes),
        ),
        reasons=(),
        table=Table(
            caption="Numbers",
            columns=columns,
            rows=tuple(
                Row(cells=(label, text, device.sources[field]))
                for label, text, field in _numbers(device)
            ),
        ),
        notes=(_FREE,),
    )


def _numbers(device: DeviceSpec) -> list[tuple[str, str, str]]:
    """Label, text and field of every number that is known."""
    from bsprof.units import format_bytes

    numbers = [
        ("memory handed out", _interval(device.capacity_bytes), "capacity_bytes"),
        ("nominal memory", format_bytes(device.nominal_memory_bytes), "nominal_memory_bytes"),
        ("compute units", str(device.compute_units), "compute_units"),
        *(
            (f"{kind} peak, dense", _rate(rate, "FLOP/s"), "flops_per_s")
            for kind, rate in device.flops_per_s.items()
        ),
        ("bandwidth", _rate(device.bandwidth_bytes_per_s, "B/s"), "bandwidth_bytes_per_s"),
        *(
            (f"{link}, each way", _rate(rate, "B/s"), "links_bytes_per_s")
            for link, rate in device.links_bytes_per_s.items()
        ),
    ]
    if device.compute_capability is not None:
        numbers.append(("compute capability", _capability(device), "compute_capability"))
    if device.l2_bytes is not None:
        numbers.append(("L2 cache", format_bytes(device.l2_bytes), "l2_bytes"))
    if device.boost_clock_hz is not None:
        numbers.append(("boost clock", _rate(device.boost_clock_hz, "Hz"), "boost_clock_hz"))
    if device.power_w is not None:
        numbers.append(("power limit", f"{device.power_w:.0f} W", "power_w"))
    if device.context_bytes is not None:
        numbers.append(("context", _interval(device.context_bytes), "context_bytes"))
    return numbers


def _interval(amount: Quantity) -> str:
    from bsprof.units import format_bytes

    low, high = format_bytes(amount.low), format_bytes(amount.high)
    return f"{format_bytes(amount.value)} ({low} to {high})"


def _print_json(terminal: Terminal, found: Sequence[DeviceSpec]) -> None:
    import json

    from bsprof.records.codec import to_json

    document = {"schema": DOCUMENT_SCHEMA, "devices": to_json(tuple(found))}
    terminal.answer(json.dumps(document, indent=1, sort_keys=True))

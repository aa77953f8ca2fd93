"""`bsprof models`: what `--model` takes: listed, filtered, explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bsprof.cli.options import DOCUMENT_SCHEMA, Color, Debug, Json, Quiet, Verbose, terminal_of
from bsprof.errors import UsageError, WorkloadError

if TYPE_CHECKING:
    from bsprof.cli.terminal import Terminal
    from bsprof.report.summary import Summary
    from bsprof.workloads.listing import KnownModel, ModelForm

EXAMPLE = "bsprof models llama --max-parameters 8B"

_COLUMNS = ("model", "family", "task", "parameters", "what it is")


def command(
    ctx: typer.Context,
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEXT]",
            help="Part of a name, a family or a task; a whole name is explained.",
            show_default="all",
        ),
    ] = None,
    family: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only models of this family.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only models with this in their task.")
    ] = None,
    min_parameters: Annotated[
        str | None, typer.Option(metavar="1B", help="Only models with at least so many parameters.")
    ] = None,
    max_parameters: Annotated[
        str | None, typer.Option(metavar="3B", help="Only models with at most so many parameters.")
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show settings, sources and an example of every match."),
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    debug: Debug = False,
    color: Color = "auto",
) -> None:
    """List and explain what --model takes.

    Built-in models, the catalogue of published architectures, and the other forms of --model.
    """
    terminal = terminal_of(ctx, quiet=quiet, verbose=verbose, debug=debug, color=color)
    from bsprof.cli.parse import one_of
    from bsprof.units import parse_parameters
    from bsprof.workloads.listing import FORMS, families, find_model, list_models

    text = text or ""
    form = _form(text)
    if form is not None:
        _refuse_filters(
            text,
            {
                "--family": family,
                "--task": task,
                "--min-parameters": min_parameters,
                "--max-parameters": max_parameters,
                "--explain": explain,
            },
        )
        _tell_form(terminal, text, form, as_json=as_json)
        return
    if family is not None:
        one_of("family", family, families())
    matches = list_models(
        text,
        family=family,
        task=task,
        min_parameters=None if min_parameters is None else parse_parameters(min_parameters),
        max_parameters=None if max_parameters is None else parse_parameters(max_parameters),
    )
    if not matches:
        raise _no_match(text, known=bool(list_models(text)))
    named = find_model(text) if text else None
    if named in matches:
        others = [model.name for model in matches if model != named]
        matches, explain = (named,), True
        if others:
            terminal.note(f"models with {text!r} in them, too: {', '.join(others)}")
    if as_json:
        _print_json(terminal, matches, () if text else FORMS)
    elif explain:
        for number, model in enumerate(matches):
            _explain(terminal, model, first=number == 0)
    else:
        _list(terminal, matches)
        if not text:
            _tell_forms(terminal, FORMS)


def _refuse_filters(text: str, given: Mapping[str, object]) -> None:
    """Refuse what has no effect on a model that is not in the list."""
    for option, value in given.items():
        if value:
            raise UsageError(
                f"{option} has no effect on {text}",
                found="a model that is not listed here",
                next_step="leave it out",
            )


def _no_match(text: str, *, known: bool) -> UsageError:
    from bsprof.workloads.listing import near_names

    if known:
        return UsageError(
            f"no model of {text!r} meets the filters" if text else "no model meets the filters",
            next_step="ask for less",
        )
    near = near_names(text) if text else []
    return UsageError(
        f"no model matches {text!r}" if text else "no model matches",
        found=f"near: {', '.join(near)}" if near else "",
        next_step="see `bsprof models` for all of them, or ask for less",
    )


def _list(terminal: Terminal, models: Sequence[KnownModel]) -> None:
    from bsprof.units import format_parameters

    rows = [(m.name, m.family, m.task, format_parameters(m.parameters), m.summary) for m in models]
    terminal.table(_COLUMNS, rows, numeric={_COLUMNS.index("parameters")})


def _explain(terminal: Terminal, model: KnownModel, *, first: bool) -> None:
    from bsprof.cli.show import show_summary

    if not first:
        terminal.answer("")
    show_summary(terminal, _summary(model))


def _summary(model: KnownModel) -> Summary:
    from bsprof.report.summary import Summary
    from bsprof.report.tables import Column, Row, Table
    from bsprof.units import format_parameters, format_rate
    from bsprof.workloads.listing import setting_text

    example = f"bsprof sweep --model {model.name}"
    columns = (
        Column(key="setting", title="--model-option", meaning="What it sets.", numeric=False),
        Column(key="default", title="default", meaning="Unless it is given.", numeric=False),
    )
    facts = [
        ("family", f"{model.family} ({model.kind})"),
        ("task", model.task),
        ("parameters", f"{model.parameters:,} ({format_parameters(model.parameters)})"),
        ("other names", ", ".join(model.aliases)),
        ("a sample", _sample_text(model)),
        ("published in", model.source),
    ]
    if model.forward_flops is not None:
        flops = format_rate(model.forward_flops, "FLOP")
        facts.append(("forward pass", f"{flops} a sample, {model.flops_source}"))
    facts += [
        ("differs", model.note),
        ("example", example),
        ("first try", f"{example} --model-option {model.small}" if model.small else ""),
    ]
    return Summary(
        title=f"{model.name}: {model.summary}",
        facts=tuple((name, text) for name, text in facts if text),
        reasons=(),
        table=Table(
            caption="Settings",
            columns=columns if model.settings else (),
            rows=tuple(
                Row(cells=(name, setting_text(value)))
                for name, value in sorted(model.settings.items())
            ),
        ),
        notes=(),
    )


def _sample_text(model: KnownModel) -> str:
    """Size of a sample by default, and the option that changes it."""
    words = {
        "seq_len": "{:,} tokens (--seq-len)",
        "target_len": "{:,} tokens of target",
        "frames": "{:,} frames",
        "image_size": "{0} x {0} pixels (--image-size)",
    }
    return ", ".join(words[key].format(value) for key, value in model.sample.items())


def _form(text: str) -> ModelForm | None:
    """The form of `--model` that the text has, for models that are not listed here.

    Raises:
        UsageError: a colon, and none of the forms.
    """
    from bsprof.workloads.listing import FORMS, find_model
    from bsprof.workloads.names import parse_model

    place, colon, _ = text.rpartition(":")
    if not colon or find_model(text) is not None:
        return None
    with suppress(WorkloadError):  # a file that is not there yet has its form all the same
        parse_model(text)
    for form in FORMS:
        if form.package and text.partition(":")[0] == form.form.partition(":")[0]:
            return form
    return FORMS[-2] if place.endswith(".py") else FORMS[-1]


def _tell_form(terminal: Terminal, text: str, form: ModelForm, *, as_json: bool) -> None:
    if as_json:
        _print_json(terminal, (), (form,))
        return
    terminal.fields(text, form.summary)
    if form.package:
        terminal.fields("package", _installed_text(form))
    terminal.fields("--model-option", form.options)
    terminal.fields("example", f"bsprof sweep --model {text}")


def _tell_forms(terminal: Terminal, forms: Sequence[ModelForm]) -> None:
    for form in forms:
        package = f" ({_installed_text(form)})" if form.package else ""
        terminal.note(f"--model {form.form}: {form.summary}{package}", label="also")


def _installed_text(form: ModelForm) -> str:
    version = _version(form.package)
    if version is None:
        return f"not installed: pip install {form.package}"
    return f"{form.package} {version}"


def _version(package: str) -> str | None:
    """Version of an installed package, without importing it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _print_json(
    terminal: Terminal, models: Sequence[KnownModel], forms: Sequence[ModelForm]
) -> None:
    import json

    from bsprof.records.codec import to_json

    document: dict[str, Any] = {
        "schema": DOCUMENT_SCHEMA,
        "models": to_json(tuple(models)),
        "forms": [
            {**to_json(form), "installed": _version(form.package) if form.package else None}
            for form in forms
        ],
    }
    terminal.answer(json.dumps(document, indent=1, sort_keys=True))

"""Defaults from `bsprof.toml`, or `[tool.bsprof]` in `pyproject.toml`, of the current folder.

Precedence: flag, environment, file, built-in default. A table named like a command holds that
command's options; a key outside any table goes to every command that has the option.

    color = "never"
    [sweep]
    precision = "amp-bf16"
    memory-limit = "20GiB"
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsprof.errors import UsageError

_OWN, _SHARED = "bsprof.toml", "pyproject.toml"


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command: its parameter, and whether it may be given several times."""

    parameter: str
    repeats: bool

    def value(self, value: Any) -> Any:
        """A TOML value as a command line would give it: text, or a list where it repeats.

        For a text option `[1, 2, 4]` is `1,2,4`.
        """
        items = [_text(item) for item in value] if isinstance(value, list) else [_text(value)]
        if self.repeats:
            return items
        return ",".join(map(str, items)) if isinstance(value, list) else items[0]


def defaults(
    folder: Path, options: Mapping[str, Mapping[str, Option]]
) -> tuple[Path | None, dict[str, dict[str, Any]]]:
    """The file, if there is one, and its defaults by command and parameter (`default_map`).

    Args:
        folder: Where the file is looked for.
        options: By command, from an option's long name without dashes to the option.

    Raises:
        UsageError: the file cannot be read, or has a key that no option is called.
    """
    path, settings = _settings(folder)
    everywhere = {name for command in options.values() for name in command}
    result: dict[str, dict[str, Any]] = {command: {} for command in options}
    for key, value in settings.items():
        if key in options and isinstance(value, dict):
            for name, inner in value.items():
                option = _option(name, options[key], f"{path}, [{key}]")
                result[key][option.parameter] = option.value(inner)
        else:
            name = key.replace("_", "-")
            if name not in everywhere:
                raise _unknown(key, sorted(everywhere | set(options)), str(path))
            for command, names in options.items():
                if name in names:
                    result[command].setdefault(names[name].parameter, names[name].value(value))
    return path, result


def find(folder: Path) -> Path | None:
    """The configuration file of that folder, if it has one."""
    if (folder / _OWN).is_file():
        return folder / _OWN
    shared = folder / _SHARED
    try:
        return shared if b"tool.bsprof" in shared.read_bytes() else None
    except OSError:  # most folders have none
        return None


def _settings(folder: Path) -> tuple[Path | None, dict[str, Any]]:
    path = find(folder)
    if path is None:
        return None, {}
    settings = _load(path)
    if path.name == _SHARED:
        for table in ("tool", "bsprof"):
            settings = settings.get(table, {})
            if not isinstance(settings, dict):
                raise UsageError(
                    f"cannot read the configuration {path}",
                    found=f"{table} is {settings!r}, not a table",
                    next_step="write the options under [tool.bsprof]",
                )
    return path, settings


def _load(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise UsageError(
            f"cannot read the configuration {path}", found=str(error), next_step="mend the file"
        ) from None


def _option(key: str, names: Mapping[str, Option], where: str) -> Option:
    name = key.replace("_", "-")
    if name not in names:
        raise _unknown(key, sorted(names), where)
    return names[name]


def _text(value: Any) -> bool | str:
    return value if isinstance(value, bool) else str(value)


def _unknown(key: str, known: list[str], where: str) -> UsageError:
    near = difflib.get_close_matches(key.replace("_", "-"), known, n=3, cutoff=0.6)
    return UsageError(
        f"unknown key {key!r} in the configuration",
        found=where,
        next_step=f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}",
    )

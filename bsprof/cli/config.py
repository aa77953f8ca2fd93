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
from pathlib import Path
from typing import Any

from bsprof.errors import UsageError

_OWN, _SHARED = "bsprof.toml", "pyproject.toml"


def defaults(
    folder: Path, options: Mapping[str, Mapping[str, str]]
) -> tuple[Path | None, dict[str, dict[str, Any]]]:
    """The file, if there is one, and its defaults by command and parameter (`default_map`).

    Args:
        folder: Where the file is looked for.
        options: By command, from an option's long name without dashes to its parameter.

    Raises:
        UsageError: the file cannot be read, or has a key that no option is called.
    """
    path, settings = _settings(folder)
    everywhere = {name for command in options.values() for name in command}
    result: dict[str, dict[str, Any]] = {command: {} for command in options}
    for key, value in settings.items():
        if key in options and isinstance(value, dict):
            for name, inner in value.items():
                result[key][_parameter(name, options[key], f"{path}, [{key}]")] = _value(inner)
        else:
            name = key.replace("_", "-")
            if name not in everywhere:
                raise _unknown(key, sorted(everywhere | set(options)), str(path))
            for command, names in options.items():
                if name in names:
                    result[command].setdefault(names[name], _value(value))
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
        settings = settings.get("tool", {}).get("bsprof", {})
    return path, settings


def _load(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise UsageError(
            f"cannot read the configuration {path}", found=str(error), next_step="mend the file"
        ) from None


def _parameter(key: str, names: Mapping[str, str], where: str) -> str:
    name = key.replace("_", "-")
    if name not in names:
        raise _unknown(key, sorted(names), where)
    return names[name]


def _value(value: Any) -> Any:
    """TOML values as a command line would give them: text, or a list of texts."""
    if isinstance(value, list):
        return [str(item) for item in value]
    return value if isinstance(value, bool) else str(value)


def _unknown(key: str, known: list[str], where: str) -> UsageError:
    near = difflib.get_close_matches(key.replace("_", "-"), known, n=3, cutoff=0.6)
    return UsageError(
        f"unknown key {key!r} in the configuration",
        found=where,
        next_step=f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}",
    )

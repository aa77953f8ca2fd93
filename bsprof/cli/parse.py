"""Option texts to values, with errors that say what would have been right."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Sequence

from bsprof.errors import UsageError
from bsprof.predict.software import software_of
from bsprof.predict.target import Software
from bsprof.records import Scalar

_PYTHON_WORDS: dict[str, Scalar] = {"True": True, "False": False, "None": None}


def one_of(option: str, value: str, known: Iterable[str]) -> str:
    """The value, if it is known.

    Raises:
        UsageError: it is not; near ones are named.
    """
    names = list(known)
    if value in names:
        return value
    near = difflib.get_close_matches(value, names, n=3, cutoff=0.6)
    raise UsageError(
        f"unknown {option} {value!r}",
        next_step=f"did you mean {' or '.join(near)}?"
        if near
        else f"use one of {', '.join(names)}",
    )


def sizes(text: str) -> tuple[int, ...]:
    """Micro-batch sizes from `1,2,4`, in the order given.

    Raises:
        UsageError: not whole numbers of at least one, or one of them twice.
    """
    try:
        values = tuple(int(part) for part in text.split(","))
    except ValueError:
        values = ()
    if not values or min(values) < 1:
        raise UsageError(
            f"cannot read the sizes {text!r}",
            next_step="write whole numbers of at least 1 with commas between: 1,2,4",
        )
    if len(set(values)) < len(values):
        raise UsageError(f"a size is given twice in {text!r}", next_step="give each size once")
    return values


def key_values(option: str, texts: Sequence[str]) -> dict[str, Scalar]:
    """Options from `KEY=VALUE` texts; values are JSON scalars, else plain text.

    Raises:
        UsageError: no `=`, a key twice, or a value that is no scalar.
    """
    result: dict[str, Scalar] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f"cannot read {option} {text!r}", next_step="write it like lr=0.001")
        if key in result:
            raise UsageError(f"{option} {key} is given twice", next_step="give it once")
        result[key] = _scalar(option, text, value)
    return result


def lora(text: str) -> tuple[int, tuple[str, ...]]:
    """Rank and names of the layers from `r=16,targets=q_proj+v_proj`; the targets may be left out.

    Raises:
        UsageError: another key, no rank, or a rank that is no whole number above zero.
    """
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    rank = parts.pop("r", "")
    targets = tuple(parts.pop("targets", "").split("+")) if "targets" in parts else ()
    if parts or not rank.isdecimal() or int(rank) == 0 or "" in targets:
        raise UsageError(
            f"cannot read --lora {text!r}",
            next_step="write r=16, or r=16,targets=q_proj+v_proj",
        )
    return int(rank), targets


def software(text: str) -> Software:
    """Versions from `torch=2.13,cudnn=9,cuda=12.8`; what is left out is as usual for that torch.

    Raises:
        UsageError: another key, one twice, or a version that is none.
    """
    pattern = r"torch=\d+\.\d+|cuda=\d+\.\d+|cudnn=\d+"
    parts = text.split(",")
    given = dict(part.partition("=")[::2] for part in parts)
    if len(given) < len(parts) or not all(re.fullmatch(pattern, part) for part in parts):
        raise UsageError(
            f"cannot read --software {text!r}",
            next_step="write torch=2.13,cudnn=9,cuda=12.8; any of them may be left out",
        )
    return software_of(**given)


def _scalar(option: str, text: str, value: str) -> Scalar:
    if value in _PYTHON_WORDS:
        return _PYTHON_WORDS[value]
    try:
        scalar: Scalar = json.loads(value)
    except ValueError:
        return value
    if isinstance(scalar, (dict, list)):
        raise UsageError(
            f"cannot read {option} {text!r}",
            found="a list or an object",
            next_step="give one number, text, true, false or null; for more, write a factory",
        )
    if isinstance(scalar, float) and not math.isfinite(scalar):
        raise UsageError(f"cannot read {option} {text!r}", found="a number that is not finite")
    return scalar

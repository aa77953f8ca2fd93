"""Records to plain JSON values and back, strictly: a wrong field is named by its path.

Works on the type hints of any record in this package: dataclasses, `Quantity`, enums, tuples,
mappings, optional fields and scalars. Never pickle, never `eval`.
"""

from __future__ import annotations

import functools
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from typing import Any, TypeVar

from bsprof.errors import ProfileFormatError

T = TypeVar("T")

_LARGEST = {int: 2**64, float: sys.float_info.max}
"""Counts and bytes beyond are no measurement, and break the arithmetic on them."""


def to_json(value: Any) -> Any:
    """A record, or anything made of records, as dicts, lists and scalars."""
    if isinstance(value, StrEnum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(to_json(k)): to_json(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(v) for v in value]
    return value


def from_json(record: type[T], data: Any, path: str = "") -> T:
    """A record of the given class from plain JSON values.

    Raises:
        ProfileFormatError: a missing, unknown or wrong field, named by its path.
    """
    return typing.cast(T, _decode(record, data, path or record.__name__))


@functools.cache
def _hints(record: type) -> dict[str, Any]:
    return typing.get_type_hints(record)


def _decode(hint: Any, data: Any, path: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        return _decode_union(hint, data, path)
    if origin is tuple:
        return _decode_tuple(hint, data, path)
    if origin is not None and issubclass(origin, Mapping):
        key_hint, value_hint = typing.get_args(hint)
        if not isinstance(data, dict):
            raise _wrong(path, "an object", data)
        return {
            _decode(key_hint, k, path): _decode(value_hint, v, f"{path}.{k}")
            for k, v in data.items()
        }
    if isinstance(hint, type) and is_dataclass(hint):
        return _decode_record(hint, data, path)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        try:
            return hint(data)
        except ValueError:
            raise _wrong(path, "one of " + ", ".join(m.value for m in hint), data) from None
    return _decode_scalar(hint, data, path)


def _decode_record(record: type, data: Any, path: str) -> Any:
    if not isinstance(data, dict):
        raise _wrong(path, "an object", data)
    known = {f.name: f for f in fields(record)}
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise ProfileFormatError(f"unknown field {path}.{unknown[0]}")
    values = {}
    for name, field in known.items():
        if name in data:
            values[name] = _decode(_hints(record)[name], data[name], f"{path}.{name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ProfileFormatError(f"missing field {path}.{name}")
    try:
        return record(**values)
    except ValueError as error:
        raise ProfileFormatError(f"{path} is not valid: {error}") from error


def _decode_union(hint: Any, data: Any, path: str) -> Any:
    choices = typing.get_args(hint)
    if data is None and type(None) in choices:
        return None
    others = [c for c in choices if c is not type(None)]
    if len(others) == 1:
        return _decode(others[0], data, path)
    if type(data) in others:  # the scalars: exact type, so that True stays a bool
        return data
    raise _wrong(path, "one of " + ", ".join(c.__name__ for c in others), data)


def _decode_tuple(hint: Any, data: Any, path: str) -> Any:
    (item, _ellipsis) = typing.get_args(hint)
    if not isinstance(data, list):
        raise _wrong(path, "a list", data)
    return tuple(_decode(item, v, f"{path}[{i}]") for i, v in enumerate(data))


def _decode_scalar(hint: Any, data: Any, path: str) -> Any:
    if hint in (int, float) and type(data) in (int, float):
        # Beyond: digits by the hundred, or 1e400, which JSON reads as infinity.
        if abs(data) > _LARGEST[hint]:
            raise ProfileFormatError(f"{path} is too large a number")
        if hint is float:
            return float(data)
    if hint in (int, str, bool) and type(data) is hint:
        return data
    raise _wrong(path, f"a {getattr(hint, '__name__', hint)}", data)


def _wrong(path: str, wanted: str, data: Any) -> ProfileFormatError:
    return ProfileFormatError(f"{path} should be {wanted}", found=repr(data)[:80])

"""One profile to text and back, strictly; the text on disk is the text of `--json`."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from bsprof.errors import OutputError, ProfileFormatError, ProfileNotFound, ProfileTooNew
from bsprof.records import SCHEMA_VERSION, Profile
from bsprof.records.codec import from_json, to_json
from bsprof.store.files import atomic_write

_ANOTHER = "pick another from `bsprof profiles`, or sweep again"


def dumps(profile: Profile) -> str:
    """The profile as JSON text: sorted keys, one final newline, the same bytes every time.

    Raises:
        OutputError: a number in it is not finite; `found` names the field.
    """
    document = to_json(profile)
    try:
        return json.dumps(document, sort_keys=True, indent=1, allow_nan=False) + "\n"
    except ValueError:
        raise OutputError(
            f"cannot write the profile of {profile.workload.model}",
            found=", ".join(_not_finite(document, "Profile")),
            next_step="leave the option out that this number comes from; a measured one is a bug",
        ) from None


def _not_finite(value: Any, path: str) -> Iterator[str]:
    """`Profile.workload.clip_norm is inf`, for every number that JSON has no word for."""
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{path} is {value}"
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _not_finite(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _not_finite(inner, f"{path}[{index}]")


def save(profile: Profile, path: Path) -> None:
    """Write the profile so that a crash at any moment leaves the old file or the new one.

    Raises:
        OutputError: the file or its folder cannot be written, or a number is not finite.
    """
    atomic_write(path, dumps(profile).encode())


def load(path: Path) -> Profile:
    """The profile in that file.

    Raises:
        ProfileNotFound: there is no such file.
        ProfileTooNew: it was written in a later format.
        ProfileFormatError: it cannot be read; `found` says what is wrong and where.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ProfileNotFound(
            f"cannot load profile {path}",
            found="no such file",
            next_step="list what there is with `bsprof profiles`",
        ) from None
    except OSError as error:
        raise ProfileFormatError(
            f"cannot load profile {path}",
            found=error.strerror or type(error).__name__,
            next_step=_ANOTHER,
        ) from error
    return loads(content, str(path))


def loads(content: bytes, where: str) -> Profile:
    """The profile in that text; `where` names it in errors.

    Raises:
        ProfileTooNew: it was written in a later format.
        ProfileFormatError: it is not a profile; `found` says what is wrong and where.
    """
    try:
        data = json.loads(content, parse_constant=_refuse_constant)
    except RecursionError:
        raise _broken(where, "JSON nested too deeply for a profile") from None
    except UnicodeDecodeError:
        raise _broken(where, "not text in UTF-8") from None
    except ValueError as error:  # JSONDecodeError is one
        raise _broken(where, f"not valid JSON: {error}") from None
    _check_version(data, where)
    try:
        profile = from_json(Profile, data)
    except ProfileFormatError as error:
        raise _broken(
            where, f"{error.doing}{', not ' if error.found else ''}{error.found}"
        ) from None
    _check_order(profile, where)
    return profile


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that JSON knows")


def _check_version(data: Any, where: str) -> None:
    if not isinstance(data, dict) or "schema" not in data:
        raise _broken(where, "no field schema at the top: not a profile of bsprof")
    version = data["schema"]
    if type(version) is not int or version < 1:
        raise _broken(where, f"format version {version!r:.80}")
    if version > SCHEMA_VERSION:
        raise ProfileTooNew(
            f"cannot load profile {where}",
            found=f"format version {version}; this bsprof knows up to version {SCHEMA_VERSION}",
            next_step="upgrade bsprof, or pick another from `bsprof profiles`",
        )


def _check_order(profile: Profile, where: str) -> None:
    for before, after in itertools.pairwise(p.micro_batch_size for p in profile.points):
        if after <= before:
            raise _broken(where, f"points out of order: size {after} follows {before}")


def _broken(where: str, found: str) -> ProfileFormatError:
    return ProfileFormatError(f"cannot load profile {where}", found=found, next_step=_ANOTHER)

"""The store: a folder of profiles, `<device>/<model>/<UTC time>.json`, and how to find one."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from bsprof.errors import BsprofError, ProfileNotFound
from bsprof.records import DeviceSnapshot, Origin, Profile
from bsprof.store.data import data_folder
from bsprof.store.profiles import load

REFERENCE = "reference"
"""Names under this prefix are the profiles that travel with bsprof; never taken unless named."""

_NOISE = re.compile(r"\((r|tm|c)\)|@.*|\bcpu\b|\bprocessor\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProfile:
    """One entry of the store.

    Attributes:
        name: What `--profile` takes: path below the store without the `.json`.
        path: The file.
        profile: Its content; None when it cannot be read.
        problem: Why it cannot be read; None when it can.
    """

    name: str
    path: Path
    profile: Profile | None
    problem: BsprofError | None = None


def store_folder() -> Path:
    """The folder that profiles are kept in: `BSPROF_STORE`, else `profiles` right here."""
    return Path(os.environ.get("BSPROF_STORE") or "profiles")


def slug(text: str) -> str:
    """Text as a folder name: lower-case letters, digits and single dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"


def device_slug(device: DeviceSnapshot) -> str:
    """A device as a folder name: `nvidia-h200`, `cpu-intel-xeon-platinum-8481c`."""
    name = slug(_NOISE.sub(" ", device.name))
    return (
        name if name.startswith(device.kind) or device.kind == "cuda" else f"{device.kind}-{name}"
    )


def model_slug(model: str) -> str:
    """A model as a folder name: `gpt-tiny`; `train-make` for `some/where/train.py:make`."""
    source, colon, factory = model.rpartition(":")
    if not colon:
        return slug(model)
    file = source.replace("\\", "/").rpartition("/")[2]
    return slug(f"{file.removesuffix('.py')}-{factory}")


def profile_path(profile: Profile, store: Path) -> Path:
    """Where a profile is kept in a store: the same place at every save of one sweep.

    What was predicted for a device lies beside what was measured on it, not among it.
    """
    stamp = re.sub(r"[^0-9TZ]", "", profile.created_at.replace("+00:00", "Z"))
    device = device_slug(profile.device)
    if profile.origin is Origin.PREDICTED:
        device += "-predicted"
    folder = store / device / model_slug(profile.workload.model)
    return folder / f"{stamp or 'undated'}.json"


def listing(store: Path, *, reference: Path | None = None) -> list[StoredProfile]:
    """Everything in the store, newest first, then the reference profiles; broken ones too.

    Args:
        store: The store's folder; it need not exist.
        reference: Folder of the reference profiles; None looks it up.
    """
    return [_entry(name, path) for name, path in files(store) + _reference_files(reference)]


def newest(store: Path, *, model: str | None = None, device: str | None = None) -> StoredProfile:
    """The newest profile of the store, never a reference one, optionally of a model and device.

    Args:
        store: The store's folder.
        model: Only profiles of this model, as it was given to the sweep.
        device: Only profiles of this device: a kind (`cuda`), a kind and number (`cuda:1`), a
            name of the catalogue that was predicted for, or part of the device's name.

    Raises:
        ProfileNotFound: the store has none.
        ProfileFormatError: the newest cannot be read.
    """
    held = files(store)
    for name, path in held:
        if model is None and device is None:
            return StoredProfile(name=name, path=path, profile=load(path))
        entry = _entry(name, path)
        if entry.profile is not None and matches(entry.profile, model, device):
            return entry
    wanted = " ".join(
        part for part in (f"of {model}" if model else "", f"on {device}" if device else "") if part
    )
    found = f"{len(held)} of other models or devices" if held else "none"
    raise ProfileNotFound(
        f"no profile {wanted}".rstrip() + f" in the store {store}",
        found=found,
        next_step="measure one with `bsprof sweep --model MODEL`, or name one with --profile",
    )


def matches(profile: Profile, model: str | None, device: str | None) -> bool:
    """Whether a profile is of that model and device; None and `auto` match all."""
    if model is not None and profile.workload.model != model:
        return False
    if device is None or device == "auto":
        return True
    snapshot = profile.device
    if profile.prediction is not None and device == profile.prediction.device:
        return True
    kind, _, index = device.partition(":")
    if kind == snapshot.kind:
        return not index or index == str(snapshot.index)
    return slug(device) in device_slug(snapshot) or device == snapshot.details.get("catalogue")


def find(wanted: str, store: Path, *, reference: Path | None = None) -> tuple[str, Path]:
    """Name and file of the profile that the user means.

    Args:
        wanted: A file, or a name in the store. The start of a name is enough
            (`cpu-xeon/gpt-tiny`); the newest that begins so is taken.
        store: The store's folder.
        reference: Folder of the reference profiles; None looks it up.

    Raises:
        ProfileNotFound: nothing by that name; `found` lists near ones.
    """
    if Path(wanted).is_file():
        return wanted, Path(wanted)
    known = files(store) + _reference_files(reference)
    start = wanted.removesuffix(".json").rstrip("/")
    for name, path in known:
        if name == start:
            return name, path
    for name, path in known:
        if start and name.startswith(start):
            return name, path
    import difflib

    names = [name for name, _ in known]
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    raise ProfileNotFound(
        f"no profile {wanted}",
        found=f"near: {', '.join(near)}" if near else f"no such file, and no such name in {store}",
        next_step="list what there is with `bsprof profiles`",
    )


def read(wanted: str, store: Path) -> StoredProfile:
    """The profile that the user means, loaded; see `find`.

    Raises:
        ProfileNotFound: nothing by that name.
        ProfileFormatError: it cannot be read.
    """
    name, path = find(wanted, store)
    return StoredProfile(name=name, path=path, profile=load(path))


def _entry(name: str, path: Path) -> StoredProfile:
    try:
        return StoredProfile(name=name, path=path, profile=load(path))
    except BsprofError as error:
        return StoredProfile(name=name, path=path, profile=None, problem=error)


def files(store: Path) -> list[tuple[str, Path]]:
    """Names and files of a store, newest first; hidden folders and `reference` left out."""
    found = []
    for path in store.rglob("*.json"):
        parts = path.relative_to(store).parts
        if parts[0] == REFERENCE or any(part.startswith(".") for part in parts):
            continue
        found.append(("/".join(parts).removesuffix(".json"), path))
    return sorted(found, key=_age, reverse=True)


def _reference_files(reference: Path | None) -> list[tuple[str, Path]]:
    folder = data_folder("profiles/reference") if reference is None else reference
    return sorted(
        (
            f"{REFERENCE}/{path.relative_to(folder).as_posix().removesuffix('.json')}",
            path,
        )
        for path in folder.rglob("*.json")
    )


def _age(item: tuple[str, Path]) -> tuple[str, str]:
    """Sort key: the time in the file's name; for other names, when the file was written."""
    name, path = item
    stamp = path.stem
    if not re.fullmatch(r"\d{8}T\d{6,}Z?", stamp):
        from datetime import UTC, datetime

        try:
            written = path.stat().st_mtime
        except OSError:  # a link to nothing: listed, as unreadable, behind all others
            return "", name
        stamp = datetime.fromtimestamp(written, UTC).strftime("%Y%m%dT%H%M%SZ")
    return stamp.rstrip("Z"), name

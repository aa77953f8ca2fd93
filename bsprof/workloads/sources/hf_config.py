"""Configurations of Hugging Face models: found on this machine, read, and changed. No network."""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from bsprof.errors import UsageError, WorkloadError
from bsprof.records import Scalar, WorkloadSpec
from bsprof.workloads.faults import user_code
from bsprof.workloads.sources.packages import find_name, refuse_reserved

CONFIG_FILE = "config.json"
_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_PRECISION = "the weights have the type that --precision says"
RESERVED = {
    "dtype": _PRECISION,
    "torch_dtype": _PRECISION,
    "attn_implementation": "use --attention",
    "_attn_implementation": "use --attention",
    "auto_map": "edit the file",
    "model_type": "edit the file",
    "quantization_config": "edit the file",
}
"""Fields of a configuration that are no option here, and why."""

ADDED_FIELDS = ("architectures", "num_labels")
"""Fields that every configuration takes, whether its file names them or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A configuration as it lies on disk.

    Attributes:
        path: The file.
        fields: What it says.
    """

    path: Path
    fields: Mapping[str, Any]

    @property
    def source(self) -> str:
        """What transformers calls the model: the folder, or a file of another name."""
        return str(self.path.parent if self.path.name == CONFIG_FILE else self.path)


def read_config(spec: WorkloadSpec, name: str) -> ConfigFile:
    """The configuration that `hf:NAME` means: a folder, a file, or an id in the local hub cache.

    Raises:
        UsageError: it needs code of its own and `--trust-remote-code` was not given, or it
            describes quantized weights.
        WorkloadError: there is no such file here, or it cannot be read. Nothing is downloaded.
    """
    path = find_config(spec.model, name)
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WorkloadError(
            f"cannot read the configuration of {spec.model}",
            found=f"{path}: {error}",
            next_step="check that it is a config.json as transformers writes it",
        ) from error
    if not isinstance(fields, dict) or not isinstance(fields.get("model_type"), str):
        raise WorkloadError(
            f"the configuration of {spec.model} names no model_type",
            found=str(path),
            next_step="check that it is a config.json of transformers",
        )
    _check_remote_code(spec, path, fields)
    if fields.get("quantization_config") is not None:
        raise UsageError(
            f"{spec.model} has quantized weights, which cannot be trained",
            found=f"quantization_config in {path}",
            next_step="remove that field from a copy of the file to measure the model without",
        )
    return ConfigFile(path=path, fields=fields)


def load_config(transformers: ModuleType, spec: WorkloadSpec, file: ConfigFile) -> Any:
    """transformers' own object for a configuration, with the `--model-option`s in it.

    Without a type of the weights: they are made in fp32, and cast as `--precision` asks.

    Raises:
        UsageError: an option that is no field of it (near ones are named), or of another kind.
        WorkloadError: transformers does not know the type of model, or refuses the values.
    """
    kind = file.fields["model_type"]
    if kind not in transformers.CONFIG_MAPPING and not spec.trust_remote_code:
        raise WorkloadError(
            f"transformers {transformers.__version__} knows no models of type {kind!r}",
            found=find_name(kind, transformers.CONFIG_MAPPING),
            next_step="pip install --upgrade transformers, or check model_type in the file",
        )
    with user_code(f"cannot read the configuration of {spec.model}"), offline():
        published = transformers.AutoConfig.from_pretrained(
            file.source, local_files_only=True, trust_remote_code=spec.trust_remote_code
        )
    fields = {k: v for k, v in file.fields.items() if k not in ("dtype", "torch_dtype")}
    fields |= _changes(spec, published, file.fields)
    with user_code(f"cannot build the configuration of {spec.model}"), offline():
        config = type(published).from_dict(fields)
    config.name_or_path = file.source
    return config


@contextmanager
def offline() -> Iterator[None]:
    """Keep the hub's client from the network: what is not on this machine is an error."""
    constants = importlib.import_module("huggingface_hub.constants")
    before = os.environ.get("HF_HUB_OFFLINE"), constants.HF_HUB_OFFLINE
    os.environ["HF_HUB_OFFLINE"], constants.HF_HUB_OFFLINE = "1", True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before[1]  # type: ignore[attr-defined]
        if before[0] is None:
            del os.environ["HF_HUB_OFFLINE"]
        else:
            os.environ["HF_HUB_OFFLINE"] = before[0]


def find_config(model: str, name: str) -> Path:
    """The file that a name means; folders go before ids.

    Raises:
        WorkloadError: there is none on this machine.
    """
    path = Path(name).expanduser()
    if path.is_file():
        return path.resolve()
    if path.is_dir():
        if (path / CONFIG_FILE).is_file():
            return (path / CONFIG_FILE).resolve()
        raise WorkloadError(
            f"cannot load the model {model!r}",
            found=f"no {CONFIG_FILE} in {path.resolve()}",
            next_step="name a folder with a config.json, as save_pretrained writes it",
        )
    cached = _cached(name) if _ID.fullmatch(name) else None
    if cached is None:
        fetch = f", or fetch it first: hf download {name} {CONFIG_FILE}"
        raise WorkloadError(
            f"cannot load the model {model!r}",
            found=f"no such folder, seen from {Path.cwd()}, and nothing in the local hub cache; "
            "bsprof downloads nothing",
            next_step=f"name a folder with a config.json{fetch if _ID.fullmatch(name) else ''}",
        )
    return cached


def _cached(name: str) -> Path | None:
    """The configuration of an id in the local hub cache."""
    hub = importlib.import_module("huggingface_hub")
    found = hub.try_to_load_from_cache(name, CONFIG_FILE)
    # Not resolved: the link's folder has the model's other files, the blob's has not.
    return Path(found) if isinstance(found, str) else None


def _check_remote_code(spec: WorkloadSpec, path: Path, fields: Mapping[str, Any]) -> None:
    if fields.get("auto_map") and not spec.trust_remote_code:
        raise UsageError(
            f"{spec.model} comes with Python code of its own, which runs only when asked for",
            found=f"auto_map in {path}",
            next_step="read that code and give --trust-remote-code, or remove auto_map from a "
            f"copy of the file to measure transformers' own {fields['model_type']}, if it has one",
        )
    if spec.trust_remote_code and not fields.get("auto_map"):
        raise UsageError(
            f"--trust-remote-code has no effect on {spec.model}",
            found=f"no auto_map in {path}, so no code of its own",
            next_step="leave it out",
        )


def _changes(spec: WorkloadSpec, published: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields to write over a configuration's, by the names that its file uses."""
    refuse_reserved(spec.model, spec.model_options, RESERVED)
    names = cast(dict[str, str], dict(getattr(published, "attribute_map", {})))
    known = {*published.to_dict(), *names, *ADDED_FIELDS} - {*RESERVED}
    changes: dict[str, Any] = {}
    for key, value in ({**spec.model_options} | _image_size(spec, known)).items():
        if key not in known:
            raise UsageError(
                f"the configuration of {spec.model} has no field {key!r}",
                found=find_name(key, known),
                next_step=f"its fields: {', '.join(sorted(k for k in known if k[0] != '_'))}",
            )
        field = names.get(key, key)
        changes |= _change(field, value, getattr(published, field, None))
    return changes | _shorter_lists(changes, published, fields)


def _image_size(spec: WorkloadSpec, known: Collection[str]) -> dict[str, Scalar]:
    """`--image-size` as a field, where the configuration has one for it.

    Raises:
        UsageError: two sizes.
    """
    if spec.image_size is None or "image_size" not in known:
        return {}
    if "image_size" in spec.model_options:
        raise UsageError(
            f"--image-size and --model-option image_size both set the images of {spec.model}",
            next_step="leave the option out",
        )
    return {"image_size": spec.image_size}


def _change(field: str, value: Scalar, old: object) -> dict[str, Any]:
    """One field's new value, with what depends on it.

    Raises:
        UsageError: the field holds several values.
    """
    if field == "architectures":
        return {field: [value]}
    if field == "image_size" and isinstance(old, list | tuple):
        return {field: [value] * len(old)}
    if field == "num_labels":
        return {field: value, "id2label": None, "label2id": None}
    if isinstance(old, dict | list | tuple) or hasattr(old, "to_dict"):
        raise UsageError(
            f"--model-option {field} cannot be set: it has several values",
            next_step="edit a copy of the file",
        )
    return {field: value}


def _shorter_lists(
    changes: Mapping[str, Any], published: Any, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Lists with one value a layer, cut where an option asks for fewer layers."""
    key = getattr(published, "attribute_map", {}).get("num_hidden_layers", "num_hidden_layers")
    old = getattr(published, "num_hidden_layers", None)
    new = changes.get(key)
    if not isinstance(old, int) or not isinstance(new, int) or new >= old:
        return {}
    return {
        name: value[:new]
        for name, value in fields.items()
        if isinstance(value, list) and len(value) == old and name not in changes
    }

"""Traces that outlive a run: a full validation traces a thousand models, and may be stopped."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import bsprof
from bsprof.measure.crew import Trouble
from bsprof.predict.target import Protocol, TraceTarget
from bsprof.predict.trace.serial import stream_to_json
from bsprof.predict.worker import TracedSize, TraceWorker, traced_size
from bsprof.records import WorkloadSpec
from bsprof.records.codec import to_json
from bsprof.store import atomic_write

_TRACING = (
    "predict/trace",
    "predict/cuda",
    "predict/stream.py",
    "accounting",
    "workloads",
    "validate/models",
)
"""Whose code decides what a trace is; the last, of models written for validation alone."""
_OWN_PACKAGE = "bsprof.validate.models."
_PACKAGES = ("torch", "timm", "torchvision", "transformers", "peft")


class KeptTraces(TraceWorker):
    """A worker that traces what no file has yet.

    Args:
        folder: Of the files, one a trace.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def trace(
        self,
        spec: WorkloadSpec,
        micro_batch_size: int,
        target: TraceTarget,
        protocol: Protocol,
        others: Sequence[TraceTarget] = (),
    ) -> TracedSize | Trouble:
        """As in `TraceWorker`; from a file where there is one, whose answer knows no `others`."""
        asked = {
            "workload": to_json(spec),
            "size": micro_batch_size,
            "target": to_json(target),
            "protocol": to_json(protocol),
            "made_by": made_by(own_models=spec.model.startswith(_OWN_PACKAGE)),
        }
        name = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:24]
        path = self._folder / f"{name}.json.gz"
        kept = _read(path)
        if kept is not None:
            return kept
        found = super().trace(spec, micro_batch_size, target, protocol, others)
        if isinstance(found, TracedSize):
            self._folder.mkdir(parents=True, exist_ok=True)
            atomic_write(path, _packed(found))
        return found


@functools.cache
def made_by(*, own_models: bool) -> str:
    """Digest of the code that traces, and of the packages whose models and operators are traced.

    Args:
        own_models: Whether the model is one of those written for validation.
    """
    digest = hashlib.sha256()
    root = Path(bsprof.__file__).parent
    for part in _TRACING if own_models else _TRACING[:-1]:
        place = root / part
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            digest.update(path.read_bytes())
    for package in _PACKAGES:
        try:
            digest.update(f"{package} {metadata.version(package)}".encode())
        except metadata.PackageNotFoundError:
            continue
    return digest.hexdigest()[:16]


def _packed(found: TracedSize) -> bytes:
    content = {
        "stream": stream_to_json(found.stream),
        "facts": to_json(found.facts),
        "key": to_json(found.key),
        "notes": to_json(found.notes),
        "seconds": found.seconds,
    }
    return gzip.compress(json.dumps(content, separators=(",", ":")).encode(), 3, mtime=0)


def _read(path: Path) -> TracedSize | None:
    """What a file holds; None where there is none that can be read (a stopped run's)."""
    try:
        return traced_size(json.loads(gzip.decompress(path.read_bytes())))
    except (OSError, EOFError, ValueError, KeyError):
        return None

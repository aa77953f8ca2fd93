"""The user's own data loader: `file.py:function`, called and set as a measurement asks.

The function returns a torch `DataLoader`, or a `Dataset` of which bsprof makes one. It is called
with those of `batch_size`, `num_workers` and `prefetch_factor` that its signature names. What it
does not name is set on what it returned:

- a plain `DataLoader` is built again with the wanted batch size, workers and prefetch; its data
  set, sampler, `collate_fn` and everything else are kept. One with a batch sampler of its own, or
  that does not batch at all, keeps its batch size;
- an instance of a subclass of `DataLoader` is measured as it is;
- of a data set (whatever has `__getitem__` and `__len__`, or an `IterableDataset`) a `DataLoader`
  is made that shuffles where it can and keeps its workers from epoch to epoch.

Torch and the user's code are imported when a loader is made, so only a worker does that.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bsprof.errors import UsageError, WorkloadError
from bsprof.workloads.faults import user_code
from bsprof.workloads.names import ModelName, parse_model
from bsprof.workloads.resolve import load_factory

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

USUAL_PREFETCH = 2
"""What torch takes where a loader with workers says nothing (torch.utils.data.DataLoader)."""
SETTABLE = ("batch_size", "num_workers", "prefetch_factor")
NEXT_STEP = "name a function that returns a DataLoader or a Dataset, such as data.py:train_loader"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderSetting:
    """What is asked of a loader; what it cannot be given it goes on without.

    Attributes:
        batch_size: Samples in a batch.
        num_workers: Background processes.
        prefetch_times: The loader's own prefetch (torch's usual one where it has none) is
            multiplied by this.
    """

    batch_size: int
    num_workers: int
    prefetch_times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeLoader:
    """A loader, and which of `SETTABLE` another setting would change."""

    loader: DataLoader[Any]
    settable: frozenset[str]


def parse_loader(name: str) -> ModelName:
    """The file or module and the function that `--loader` names; imports nothing.

    Raises:
        UsageError: not the form of a function in a file or module.
        WorkloadError: there is no such file.
    """
    location, _, function = name.rpartition(":")
    if location.endswith(".py") and function.isidentifier() and not Path(location).is_file():
        raise WorkloadError(
            f"cannot load the loader {name!r}",
            found=f"no file {location}, seen from {Path.cwd()}",
            next_step="check the path",
        )
    try:
        parsed = parse_model(name)
    except UsageError:
        parsed = None
    if parsed is None or parsed.kind not in ("file", "module"):
        raise UsageError(f"cannot read the loader {name!r}", next_step=NEXT_STEP)
    return parsed


class UserLoader:
    """A loader that can be made again and again, each time with another setting.

    Args:
        name: `file.py:function` or `package.module:function`.

    Raises:
        UsageError: the name has not that form.
        WorkloadError: importing raised, there is no such function, or it needs what it cannot be
            given.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._function = _load(name)
        self._named = _named(self._function, name)
        self._returned: Any = None

    def make(self, setting: LoaderSetting) -> MadeLoader:
        """The loader as near to a setting as it can be brought.

        Raises:
            WorkloadError: the user's code raised, or returned something else.
        """
        asked = {key: self._wanted(setting)[key] for key in self._named}
        if asked or self._returned is None:
            with user_code(f"cannot make the loader {self.name}"):
                self._returned = self._function(**asked)
            _check(self._returned, self.name)
        left = set(SETTABLE) - set(self._named)
        loader, changed = _set(self._returned, {**self._wanted(setting), **asked}, left)
        return MadeLoader(loader=loader, settable=frozenset(self._named) | changed)

    @property
    def folder(self) -> Path:
        """Where the user's code lies."""
        parsed = parse_loader(self.name)
        if parsed.kind == "file":
            return Path(parsed.location).resolve().parent
        file = sys.modules[parsed.location].__file__
        return Path(file).resolve().parent if file else Path.cwd()

    @property
    def own_workers(self) -> int | None:
        """The workers it has when nobody asks for others; None where nothing says so.

        Valid once a loader was made.
        """
        if "num_workers" in self._named:
            return _count(self._named["num_workers"].default)
        return _count(getattr(self._returned, "num_workers", None))

    def _wanted(self, setting: LoaderSetting) -> dict[str, Any]:
        prefetch = None
        if setting.num_workers:
            named = self._named.get("prefetch_factor")
            own = named.default if named else getattr(self._returned, "prefetch_factor", None)
            prefetch = (_count(own) or USUAL_PREFETCH) * setting.prefetch_times
        return {
            "batch_size": setting.batch_size,
            "num_workers": setting.num_workers,
            "prefetch_factor": prefetch,
        }


def _load(name: str) -> Callable[..., Any]:
    parsed = parse_loader(name)
    try:
        return load_factory(parsed)
    except WorkloadError as error:
        if error.__cause__ is not None:  # raised by the user's code
            raise
        raise WorkloadError(
            f"no function {parsed.factory!r} in {parsed.location}",
            found=error.found,
            next_step=NEXT_STEP,
        ) from None


def _named(function: Callable[..., Any], name: str) -> dict[str, inspect.Parameter]:
    """Those of `SETTABLE` that the signature names, each with its parameter."""
    parameters = inspect.signature(function).parameters
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    missing = [
        parameter.name
        for parameter in parameters.values()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind not in optional
        and parameter.name not in SETTABLE
    ]
    if missing:
        raise WorkloadError(
            f"cannot call the loader {name}",
            found=f"it needs {', '.join(missing)}",
            next_step=f"a loader may take {', '.join(SETTABLE)}; give others a default",
        )
    return {key: parameters[key] for key in SETTABLE if key in parameters}


def _check(returned: Any, name: str) -> None:
    """Refuse what is neither a loader nor a data set."""
    from torch.utils.data import DataLoader, Dataset

    is_sequence = hasattr(returned, "__getitem__") and hasattr(returned, "__len__")
    if isinstance(returned, DataLoader | Dataset):
        return
    if is_sequence and not isinstance(returned, tuple | str | Mapping | type):
        return
    raise WorkloadError(
        f"the loader {name} must return a torch DataLoader or a Dataset",
        found=f"it returned {'nothing' if returned is None else f'a {type(returned).__name__}'}",
        next_step="return DataLoader(dataset, ...), or the data set alone",
    )


def _set(
    returned: Any, values: Mapping[str, Any], left: set[str]
) -> tuple[DataLoader[Any], set[str]]:
    """What the function returned as a loader with the values in `left`, and which of them took."""
    from torch.utils.data import DataLoader, IterableDataset

    if not isinstance(returned, DataLoader):
        loader = DataLoader(
            returned,
            shuffle=None if isinstance(returned, IterableDataset) else True,
            persistent_workers=values["num_workers"] > 0,
            **values,
        )
        return loader, left
    if not left or type(returned) is not DataLoader:
        return returned, set()
    if returned.batch_size is None:
        left = left - {"batch_size"}
    return _rebuilt(returned, {key: values[key] for key in left}), left


def _rebuilt(loader: DataLoader[Any], wanted: Mapping[str, Any]) -> DataLoader[Any]:
    """A plain loader with other values of some of `SETTABLE`, and everything else as it was."""
    from torch.utils.data import DataLoader

    options: dict[str, Any] = {
        "num_workers": wanted.get("num_workers", loader.num_workers),
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "worker_init_fn": loader.worker_init_fn,
        "generator": loader.generator,
        **_batching(loader, wanted),
    }
    if options["num_workers"]:  # torch refuses these without workers
        options |= {
            "prefetch_factor": wanted.get("prefetch_factor", loader.prefetch_factor),
            "timeout": loader.timeout,
            "multiprocessing_context": loader.multiprocessing_context,
            "persistent_workers": loader.persistent_workers,
        }
    if not getattr(loader, "in_order", True):  # since torch 2.6
        options["in_order"] = False
    return DataLoader(loader.dataset, **options)


def _batching(loader: DataLoader[Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a loader that say which samples make a batch."""
    from torch.utils.data import IterableDataset

    if loader.batch_size is None and loader.batch_sampler is not None:
        return {"batch_sampler": loader.batch_sampler}
    options: dict[str, Any] = {"batch_size": None}
    if loader.batch_size is not None:
        size = wanted.get("batch_size", loader.batch_size)
        options = {"batch_size": size, "drop_last": loader.drop_last}
    if not isinstance(loader.dataset, IterableDataset):  # torch makes its own sampler for those
        options["sampler"] = loader.sampler
    return options


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None

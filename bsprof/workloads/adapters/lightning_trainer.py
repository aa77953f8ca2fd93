"""What a LightningModule or LightningDataModule expects to be attached to: a quiet Trainer.

A real `Trainer(barebones=True)`, Lightning's own mode without logging, checkpoints and progress
bars: `self.log` does nothing there. It runs no loop; bsprof does.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bsprof.errors import WorkloadError

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
"""The two names under which PyTorch Lightning is installed; their classes do not mix."""
_KINDS = ("LightningModule", "LightningDataModule")
UPDATES = 1000
"""What `trainer.estimated_stepping_batches` answers. Learning rate schedules ask for it when they
are made; bsprof steps none of them, so any number above their warm-up does."""


def lightning_package(value: object, kind: str) -> str | None:
    """The package whose `kind` (`LightningModule`, ...) a value is; None where it is none."""
    bases = (base for base in type(value).__mro__ if base.__name__ == kind)
    return next((package for base in bases if (package := _package_of(base))), None)


def overrides(value: Any, hook: str) -> bool:
    """Whether a module or data module has a hook of its own, not that of its base class."""
    if hook in vars(value):
        return True
    kind = type(value)
    bases = [base for base in kind.__mro__ if base.__name__ in _KINDS and _package_of(base)]
    return hasattr(kind, hook) and not any(
        getattr(kind, hook) is getattr(base, hook, None) for base in bases
    )


def _package_of(base: type) -> str | None:
    return next((p for p in PACKAGES if base.__module__.startswith(f"{p}.")), None)


class Trainers:
    """The one Trainer of a workload, made when the first object of its package asks for it."""

    def __init__(self) -> None:
        self._package = ""
        self._trainer: Any = None

    def of(self, package: str) -> Any:
        """The Trainer.

        Raises:
            WorkloadError: it was made by the other package.
        """
        if self._trainer is None:
            self._package, self._trainer = package, _quiet_trainer(package)
        if package != self._package:
            raise WorkloadError(
                "the module and its data are of two installations of Lightning",
                found=f"{self._package} and {package}",
                next_step="import both from the same package",
            )
        return self._trainer


def _quiet_trainer(package: str) -> Any:
    lightning = importlib.import_module(package)
    environments = importlib.import_module(f"{package}.plugins.environments")
    loggers = importlib.import_module(f"{package}.loggers.logger")
    kind = type("Trainer", (lightning.Trainer,), {"estimated_stepping_batches": UPDATES})
    with _silence(package):
        trainer = kind(
            barebones=True,
            # It moves nothing: bsprof does, to the device that is measured.
            accelerator="cpu",
            devices=1,
            max_epochs=1,
            # Whatever launcher's variables are set: this process is alone.
            plugins=[environments.LightningEnvironment()],
        )
    # So that `self.logger.experiment.add_image(...)` goes nowhere instead of failing.
    trainer.loggers = [loggers.DummyLogger()]
    # Said at each call of self.log otherwise.
    warnings.filterwarnings("ignore", message=r"You are trying to `self\.log\(\)` but `Trainer\(")
    return trainer


@contextmanager
def _silence(package: str) -> Iterator[None]:
    """Without what a Trainer tells people who are about to train."""
    log = logging.getLogger(package)
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)

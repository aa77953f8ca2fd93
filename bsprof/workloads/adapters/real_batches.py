"""`Workload.from_batches`: batches of any size from the user's own data set or loader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, IterableDataset, default_collate

from bsprof.errors import WorkloadError
from bsprof.workloads.adapters.drawing import Choice, Drawing
from bsprof.workloads.adapters.models import made, model_function
from bsprof.workloads.adapters.samples import IndexedSamples, Samples, StreamedSamples
from bsprof.workloads.workload import Workload


def from_batches(
    model: nn.Module | Callable[[], nn.Module],
    data: Any,
    choice: Choice,
    *,
    loss: Callable[[nn.Module, Any], Tensor],
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None,
    size: Callable[[Any], int] | None,
    dataset_size: int | None,
) -> Workload:
    """See `Workload.from_batches`."""
    drawing = open_data(data, choice)
    return Workload(
        model=model_function(model),
        batch=drawing.batch,
        loss=loss,
        optimizer=optimizer,
        size=size,
        count=drawing.count,
        tokens_per_sample=drawing.tokens_per_sample,
        dataset_size=dataset_size if dataset_size is not None else drawing.size,
        notes=drawing.notes(),
    )


def open_data(data: Any, choice: Choice) -> Drawing:
    """Batches out of a loader's data set, or out of a data set; a function is called for it.

    Raises:
        WorkloadError: neither, or a loader that makes no batches of single samples.
    """
    data = made(data)
    collate = choice.collate
    positions = None
    if isinstance(data, DataLoader):
        _check_collates(data)
        collate = collate or data.collate_fn
        positions = getattr(data.sampler, "indices", None)  # of a SubsetRandomSampler
        data = data.dataset
    return Drawing(_samples(data, positions, choice.seed), collate or default_collate, choice)


def _check_collates(loader: DataLoader[Any]) -> None:
    if loader.batch_sampler is None:
        raise WorkloadError(
            "cannot make batches of other sizes from a DataLoader with batch_size=None",
            found="its data set makes the batches itself",
            next_step="give a data set of single samples, or write batch(micro_batch_size, device) "
            "for a Workload by hand",
        )


def _samples(dataset: Any, positions: Any, seed: int) -> Samples:
    by_position = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    streams = hasattr(dataset, "__iter__")
    if isinstance(dataset, Mapping | tuple) or not (by_position or streams):
        raise _no_data_set(dataset)
    if isinstance(dataset, IterableDataset) or not by_position:
        return StreamedSamples(dataset)
    return IndexedSamples(dataset, range(len(dataset)) if positions is None else positions, seed)


def _no_data_set(data: Any) -> WorkloadError:
    found = f"a {type(data).__name__}"
    next_step = "give a data set of single samples, or a DataLoader"
    if isinstance(data, Mapping):
        found += f" with keys {', '.join(map(str, data))}"
        next_step = "give one of its entries, a data set of single samples"
    elif isinstance(data, tuple):
        next_step = "tensors side by side make one as torch.utils.data.TensorDataset(*tensors)"
    elif hasattr(data, "__getitem__"):
        found += " without __len__"
    return WorkloadError("cannot take samples from this data", found=found, next_step=next_step)

"""Against a stand-in with the few parts of a transformers Trainer that are asked for."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bsprof.errors import UsageError, WorkloadError
from bsprof.records import Precision, WorkloadSpec
from bsprof.workloads.training import Training, build_training
from bsprof.workloads.workload import Workload


class StandIn:
    """Behaves as a Trainer does where `Workload.from_trainer` touches it."""

    def __init__(
        self,
        *,
        mixed_precision: str = "no",
        model_init: Callable[[], nn.Module] | None = None,
        optimizer: Any = None,
        **settings: Any,
    ) -> None:
        self.args = SimpleNamespace(**settings)
        self.accelerator = SimpleNamespace(mixed_precision=mixed_precision)
        self.model_init = model_init
        self.model = self.model_wrapped = nn.Linear(4, 3)
        self.optimizer = optimizer
        self.train_dataset: Any = rows(12)
        self.eval_dataset: Any = rows(5)

    def get_train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.train_dataset, batch_size=2, collate_fn=collate)

    def get_eval_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.eval_dataset, batch_size=2, collate_fn=collate)

    def call_model_init(self) -> nn.Module:
        assert self.model_init is not None
        return self.model_init()

    def create_optimizer(self) -> Any:
        if self.optimizer is None:
            self.optimizer = torch.optim.Adagrad(self.model.parameters())
        return self.optimizer

    def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
        labels = inputs.pop("labels")
        return F.cross_entropy(model(inputs["x"]), labels)


def rows(count: int) -> TensorDataset:
    return TensorDataset(torch.randn(count, 4), torch.arange(count) % 3)


def collate(samples: list[Any]) -> dict[str, Tensor]:
    return {
        "x": torch.stack([sample[0] for sample in samples]),
        "labels": torch.stack([sample[1] for sample in samples]),
    }


def build(trainer: Any, **options: Any) -> Training:
    workload = Workload.from_trainer(trainer)
    return build_training(WorkloadSpec(model="theirs", **options), workload, "cpu")


def run(training: Training) -> None:
    batch = training.make_batch(4)
    training.micro_step(batch, 1.0)
    training.micro_step(batch, 1.0)  # the batch has kept its labels
    assert training.optimizer_step()


def test_a_trainer_becomes_a_workload() -> None:
    trainer = StandIn()
    training = build(trainer)
    run(training)
    assert training.model is trainer.model
    assert training.facts.optimizer == "Adagrad"
    assert training.facts.dataset_size == 12


def test_without_training_data_those_of_evaluation_are_taken() -> None:
    trainer = StandIn()
    trainer.train_dataset = None
    assert Workload.from_trainer(trainer).dataset_size == 5


def test_a_wrapped_optimizer_is_unwrapped() -> None:
    trainer = StandIn()
    inner = torch.optim.SGD(trainer.model.parameters())
    trainer.optimizer = SimpleNamespace(optimizer=inner)
    assert build(trainer).optimizer is inner


def test_models_are_made_afresh_where_that_can_be_done() -> None:
    given = Workload.from_trainer(StandIn())
    assert given.model() is given.model()
    by_function = Workload.from_trainer(StandIn)
    assert by_function.model() is not by_function.model()
    by_init = Workload.from_trainer(
        StandIn(model_init=lambda: nn.Linear(4, 3), optimizer="of another model")
    )
    assert by_init.model() is not by_init.model()
    run(build_training(WorkloadSpec(model="theirs"), by_init, "cpu"))


@pytest.mark.parametrize("wanted", ["bf16", "fp16"])
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.AMP_BF16, Precision.BF16])
def test_precision_must_agree(wanted: str, precision: Precision) -> None:
    pytest.importorskip("accelerate")
    training = build(StandIn(mixed_precision=wanted), precision=precision)
    if (wanted, precision) == ("bf16", Precision.AMP_BF16):
        run(training)
        return
    with pytest.raises(UsageError, match=f"arguments ask for {wanted}, --precision") as caught:
        run(training)
    assert f"--precision amp-{wanted}" in caught.value.next_step


def test_a_precision_bsprof_lacks_is_refused_and_one_of_its_own_is_not() -> None:
    with pytest.raises(UsageError, match="mixed precision fp8"):
        run(build(StandIn(mixed_precision="fp8")))
    run(build(StandIn(), precision=Precision.AMP_BF16))


def test_compiling_must_agree() -> None:
    with pytest.raises(UsageError, match="ask for torch_compile") as caught:
        run(build(StandIn(torch_compile=True)))
    assert "--compile" in caught.value.next_step


class Recomputing(nn.Linear):
    """Remembers how it was asked to recompute."""

    asked: Any = None

    def gradient_checkpointing_enable(self, **options: Any) -> None:
        self.asked = options


class RecomputingAnew(Recomputing):
    def activation_checkpointing_enable(self, **options: Any) -> None:
        self.asked = {"anew": True} | options


@pytest.mark.parametrize(
    ("kind", "settings", "asked"),
    [
        (Recomputing, {"gradient_checkpointing": False}, None),
        (
            Recomputing,
            {
                "gradient_checkpointing": True,
                "gradient_checkpointing_kwargs": {"use_reentrant": False},
            },
            {"gradient_checkpointing_kwargs": {"use_reentrant": False}},
        ),
        (
            RecomputingAnew,
            {
                "activation_checkpointing": True,
                "activation_checkpointing_kwargs": {"every_n_layers": 2},
            },
            {"anew": True, "activation_checkpointing_kwargs": None, "every_n_layers": 2},
        ),
        (nn.Linear, {"gradient_checkpointing": True}, None),
    ],
)
def test_checkpointing_of_the_arguments_is_turned_on(kind: Any, settings: Any, asked: Any) -> None:
    trainer = StandIn(**settings)
    trainer.model = kind(4, 3)
    workload = Workload.from_trainer(trainer)
    assert getattr(workload.model(), "asked", None) == asked
    codes = [note.code for note in workload.notes if note.code != "batches-by-length"]
    assert codes == (["trainer-checkpointing"] if any(settings.values()) else [])


def test_settings_that_were_not_applied_are_told() -> None:
    class Own(StandIn):
        def training_step(self) -> None: ...

    notes = {note.code: note for note in Workload.from_trainer(Own(use_liger_kernel=True)).notes}
    assert "use_liger_kernel" in notes["trainer-settings"].message
    assert "training_step of Own was not run" in notes["trainer-step"].message


def test_other_objects_and_spread_models_are_refused() -> None:
    with pytest.raises(WorkloadError, match=r"needs a transformers\.Trainer") as caught:
        Workload.from_trainer(nn.Linear(4, 3))
    assert caught.value.found == "a Linear"
    sharded = StandIn()
    sharded.is_fsdp_enabled = True  # type: ignore[attr-defined]
    with pytest.raises(WorkloadError, match="a Trainer that uses fsdp"):
        Workload.from_trainer(sharded)

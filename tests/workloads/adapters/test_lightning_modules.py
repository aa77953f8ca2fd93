"""With PyTorch Lightning itself, under both of its names."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bsprof.errors import WorkloadError
from bsprof.records import Mode, Precision, WorkloadSpec
from bsprof.workloads.training import Training, build_training
from bsprof.workloads.workload import Workload

pytestmark = pytest.mark.slow  # importing Lightning takes seconds

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("lightning")

CPU = torch.device("cpu")
PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def package(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


@pytest.fixture(params=PACKAGES)
def pl(request: pytest.FixtureRequest) -> Any:
    return package(request.param)


@pytest.fixture
def one() -> Any:
    """The package under one of its names, where the name plays no part."""
    return package(PACKAGES[0])


def module_class(pl: Any, **members: Any) -> Any:
    """A classifier of eight numbers; `members` replace its own."""

    def init(self: Any, width: int = 16) -> None:
        super(kind, self).__init__()
        self.net = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 3))
        self.seen: list[Any] = []

    def training_step(self: Any, batch: Any, batch_idx: int) -> Tensor:
        self.seen.append((batch_idx, batch[0].shape[0]))
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self: Any) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    own = {
        "__init__": init,
        "training_step": training_step,
        "configure_optimizers": configure_optimizers,
    }
    kind = type("Classifier", (pl.LightningModule,), own | members)
    return kind


def rows(count: int = 24) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, 8, generator=generator)
    return TensorDataset(inputs, torch.randint(3, (count,), generator=generator))


def loader(count: int = 24) -> DataLoader[Any]:
    return DataLoader(rows(count), batch_size=2)


def build(workload: Workload, **options: Any) -> Training:
    return build_training(WorkloadSpec(model="theirs", **options), workload, "cpu")


def run(training: Training, size: int = 4) -> None:
    training.micro_step(training.make_batch(size), 1.0)


def test_an_update_is_that_of_a_lightning_trainer(pl: Any) -> None:
    training = build(Workload.from_lightning(module_class(pl), loader()))
    start = {name: value.clone() for name, value in training.model.state_dict().items()}
    run(training, 24)
    by_hand = module_class(pl)()
    by_hand.load_state_dict(start)
    batch = training.make_batch(24)
    F.cross_entropy(by_hand.net(batch[0]), batch[1]).backward()
    for ours, other in zip(training.model.parameters(), by_hand.parameters(), strict=True):
        assert torch.equal(ours.grad, other.grad)  # type: ignore[arg-type]

    assert training.optimizer_step()
    theirs = module_class(pl)()
    theirs.load_state_dict(start)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = pl.Trainer(
            max_steps=1,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(theirs, DataLoader(rows(), batch_size=24))
    for ours, other in zip(training.model.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(ours, other, atol=1e-7)


def test_what_a_module_asks_its_trainer_is_answered(pl: Any) -> None:
    answers = {}

    def training_step(self: Any, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log_dict({"a": loss, "b": 1.0}, prog_bar=True, sync_dist=True)
        self.logger.experiment.add_scalar("loss", loss, self.global_step)
        answers["lr"] = self.optimizers().param_groups[0]["lr"]
        answers["index"] = batch_idx
        answers["epoch"] = (self.current_epoch, self.trainer.max_epochs, self.trainer.world_size)
        return {"loss": loss, "output": batch[0]}

    def configure_optimizers(self: Any) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule}}

    kind = module_class(pl, training_step=training_step, configure_optimizers=configure_optimizers)
    training = build(Workload.from_lightning(kind(), loader()))
    run(training)
    assert training.optimizer_step()
    assert training.facts.optimizer == "AdamW"
    assert answers["index"] == 1
    assert answers["epoch"] == (0, 1, 1)
    assert answers["lr"] < 1e-2


def test_a_step_may_take_the_batch_alone(one: Any) -> None:
    kind = module_class(one, training_step=lambda self, batch: self.net(batch[0]).mean())
    run(build(Workload.from_lightning(kind, loader())))


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        (None, "nothing"),
        ({"logits": 1, "y": 2}, "a dict with keys logits, y"),
        ({"loss": None}, "a dict with keys loss"),
        (0.5, "a float"),
    ],
)
def test_a_step_without_a_loss_is_told(one: Any, returned: Any, found: str) -> None:
    kind = module_class(one, training_step=lambda _self, _batch, _index: returned)
    training = build(Workload.from_lightning(kind, loader()))
    with pytest.raises(WorkloadError, match="training_step of Classifier has returned") as caught:
        run(training)
    assert caught.value.found == found
    assert "'loss'" in caught.value.next_step


def test_a_step_over_an_iterator_is_refused(one: Any) -> None:
    kind = module_class(one, training_step=lambda _self, dataloader_iter: next(dataloader_iter))
    training = build(Workload.from_lightning(kind, loader()))
    with pytest.raises(WorkloadError, match=r"callable as training_step\(batch, batch_idx\)"):
        run(training)


def test_optimizing_by_hand_is_refused(one: Any) -> None:
    kind = module_class(one, automatic_optimization=False)
    with pytest.raises(WorkloadError, match="optimizes by hand") as caught:
        build(Workload.from_lightning(kind, loader()))
    assert "Workload.from_step" in caught.value.next_step


def test_several_optimizers_are_refused(one: Any) -> None:
    def two(self: Any) -> Any:
        return [torch.optim.SGD(self.parameters()), torch.optim.AdamW(self.parameters())]

    with pytest.raises(WorkloadError, match="several optimizers"):
        build(Workload.from_lightning(module_class(one, configure_optimizers=two), loader()))


def test_a_function_builds_afresh_and_an_object_is_what_it_is(one: Any) -> None:
    kind = module_class(one)
    afresh = Workload.from_lightning(lambda: kind(4), loader())
    assert afresh.model() is not afresh.model()
    module = kind()
    given = Workload.from_lightning(module, loader())
    assert given.model() is module


class Log(list[str]):
    """Names of hooks, as they run."""

    def hook(self, name: str, change: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
        def run(_self: Any, *arguments: Any) -> Any:
            self.append(name)
            return change(arguments[0]) if change else None

        return run


def test_hooks_run_in_the_order_of_a_trainer(one: Any) -> None:
    log = Log()
    names = ("prepare_data", "setup", "configure_model")
    starts = ("on_fit_start", "on_train_start", "on_train_epoch_start", "on_validation_start")
    members = {name: log.hook(name) for name in (*names, *starts)}

    def double(batch: Any) -> Any:
        return [batch[0] * 2, batch[1]]

    members["on_before_batch_transfer"] = log.hook("before", double)
    members["on_after_batch_transfer"] = log.hook("after", double)
    workload = Workload.from_lightning(module_class(one, **members), rows())
    assert log == []
    training = build(workload)
    assert log == [*names]
    log.clear()
    batch = training.make_batch(4)
    assert log == ["before"]
    doubled = {tuple(row) for row in (rows()[:][0] * 2).tolist()}
    assert {tuple(row) for row in batch[0].tolist()} <= doubled
    log.clear()
    training.micro_step(batch, 1.0)
    training.micro_step(batch, 1.0)
    assert log == [*starts[:3], "after", "after"]
    assert {tuple(row) for row in batch[0].tolist()} <= doubled  # the micro-step's own copy


def test_own_transfer_moves_the_batch(one: Any) -> None:
    moved = []

    def transfer(_self: Any, batch: Any, device: torch.device, _index: int) -> Any:
        moved.append(device)
        return [part.to(device) for part in batch]

    kind = module_class(one, transfer_batch_to_device=transfer)
    training = build(Workload.from_lightning(kind, loader()))
    training.make_batch(3)
    assert moved == [CPU]


def data_class(pl: Any, **members: Any) -> Any:
    own = {
        "setup": lambda self, stage: setattr(self, "rows", rows()) or setattr(self, "stage", stage),
        "train_dataloader": lambda self: DataLoader(self.rows, batch_size=2),
    }
    return type("Data", (pl.LightningDataModule,), own | members)


def test_a_data_module_is_set_up_and_its_hooks_come_first(pl: Any) -> None:
    log = Log()
    module = module_class(pl, on_before_batch_transfer=log.hook("module", lambda batch: batch))
    data = data_class(
        pl,
        prepare_data=log.hook("prepare"),
        on_before_batch_transfer=log.hook("data", lambda batch: batch),
    )()
    workload = Workload.from_lightning(module, data)
    assert workload.dataset_size == 24
    assert data.stage == "fit"
    training = build(workload)
    assert training.model.trainer.datamodule is data
    assert data.trainer is training.model.trainer
    training.make_batch(3)
    assert log == ["prepare", "data"]


def test_data_come_from_wherever_they_are(one: Any) -> None:
    kind = module_class(one)
    ready = one.LightningDataModule.from_datasets(rows(10), batch_size=2)
    itself = module_class(one, train_dataloader=lambda _self: loader(7))
    for workload, count in (
        (Workload.from_lightning(kind, ready), 10),
        (Workload.from_lightning(kind, lambda: loader(9)), 9),
        (Workload.from_lightning(kind, rows(8)), 8),
        (Workload.from_lightning(itself), 7),
        (Workload.from_lightning(itself, dataset_size=5), 5),
    ):
        assert workload.dataset_size == count
        run(build(workload))


def test_the_module_that_gave_its_loader_is_the_one_that_is_built(one: Any) -> None:
    made = []

    def make() -> Any:
        made.append(module_class(one, train_dataloader=lambda _self: loader())())
        return made[-1]

    workload = Workload.from_lightning(make)
    assert len(made) == 1
    assert workload.model() is made[0]
    assert workload.model() is made[1]


def test_no_loader_and_several_are_refused(one: Any) -> None:
    with pytest.raises(WorkloadError, match="Classifier has no train_dataloader"):
        Workload.from_lightning(module_class(one))
    several = data_class(one, train_dataloader=lambda _self: {"a": loader(), "b": loader()})()
    with pytest.raises(WorkloadError, match="must return one DataLoader") as caught:
        Workload.from_lightning(module_class(one), several)
    assert caught.value.found == "a dict"


def test_two_installations_do_not_mix() -> None:
    one, other = map(package, PACKAGES)
    workload = Workload.from_lightning(module_class(one), data_class(other)())
    with pytest.raises(WorkloadError, match="two installations") as caught:
        workload.model()
    assert caught.value.found == "pytorch_lightning and lightning.pytorch"


def test_inference_runs_validation(one: Any) -> None:
    log = Log()

    def validation_step(self: Any, batch: Any, batch_idx: int) -> Tensor:
        assert batch_idx == 1
        assert torch.is_inference_mode_enabled()
        assert not self.training
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("val_loss", loss)
        return loss

    starts = ("on_validation_start", "on_validation_epoch_start", "on_train_start")
    hooks = {name: log.hook(name) for name in starts}
    kind = module_class(one, validation_step=validation_step, **hooks)
    training = build(Workload.from_lightning(kind, loader()), mode=Mode.INFER)
    run(training)
    run(training)
    assert log == [*starts[:2]]


def test_inference_without_a_loss_says_so(one: Any) -> None:
    training = build(Workload.from_lightning(module_class(one), loader()), mode=Mode.INFER)
    with pytest.raises(WorkloadError, match="Classifier has no validation_step") as caught:
        run(training)
    assert "--mode infer" in caught.value.next_step
    silent = module_class(one, validation_step=lambda _self, _batch, _index: None)
    training = build(Workload.from_lightning(silent, loader()), mode=Mode.INFER)
    with pytest.raises(WorkloadError, match="validation_step of Classifier has returned no loss"):
        run(training)


def test_lightnings_own_example_counts_as_the_users() -> None:
    boring = importlib.import_module("lightning.pytorch.demos.boring_classes")
    training = build(Workload.from_lightning(boring.BoringModel))
    run(training)
    assert training.optimizer_step()


def test_mixed_precision_covers_the_step_and_not_the_hook(one: Any) -> None:
    seen = []

    def after(_self: Any, batch: Any, _index: int) -> Any:
        seen.append((batch[0] @ batch[0].T).dtype)
        return batch

    def training_step(self: Any, batch: Any, _batch_idx: int) -> Tensor:
        output = self.net(batch[0])
        seen.append(output.dtype)
        return F.cross_entropy(output, batch[1])

    kind = module_class(one, on_after_batch_transfer=after, training_step=training_step)
    run(build(Workload.from_lightning(kind, loader()), precision=Precision.AMP_BF16))
    assert seen == [torch.float32, torch.bfloat16]


# PyTorch's own, where the graph breaks at self.log.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_a_compiled_module_runs_its_step_compiled(
    one: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_ = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda module, **options: compile_(module, backend="eager", **options)
    )
    try:
        training = build(Workload.from_lightning(module_class(one), loader()), compile=True)
        eager = build(Workload.from_lightning(module_class(one), loader()))
        eager.model.load_state_dict(training.model.state_dict())
        for _ in range(2):
            run(training)
        training.check_compiled()
        training.zero_grad()
        run(training)
        run(eager)
    finally:
        torch._dynamo.reset()
    for ours, other in zip(training.model.parameters(), eager.model.parameters(), strict=True):
        assert torch.allclose(ours.grad, other.grad, atol=1e-6)  # type: ignore[arg-type]

"""Settings that are run by what is installed: bsprof.accumulate, Lightning, Accelerate, Trainer.

Each trains a small model in float64 for the updates of an epoch with SGD. The first update's
gradient is held against that of the whole batch.
"""

import importlib.util
import inspect

import pytest
import torch
from framework_answers import AMP_BF16, names_of, settings

SAMPLES = 60  # an epoch: three updates of 18, and 6 samples over
TARGET = 18
LARGEST = 4  # 18 is 4 4 4 4 2, and in equal pieces 6 of 3
RATE = 0.1


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed")


def data(samples: int = SAMPLES) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(samples, 3, generator=generator, dtype=torch.float64)
    return x, torch.randn(samples, 1, generator=generator, dtype=torch.float64)


def small_model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)
    ).double()


def loss_of(model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    x, y = batch
    return ((model(x) - y) ** 2).mean()


def whole_batch_updates(count: int, target: int = TARGET) -> list[torch.Tensor]:
    """Parameters after `count` updates of whole batches."""
    model, (x, y) = small_model(), data()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for i in range(count):
        optimizer.zero_grad()
        loss_of(
            model, (x[i * target : (i + 1) * target], y[i * target : (i + 1) * target])
        ).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def assert_as_whole_batches(model: torch.nn.Module, count: int) -> None:
    for found, wanted in zip(model.parameters(), whole_batch_updates(count), strict=True):
        torch.testing.assert_close(found.detach(), wanted, rtol=1e-12, atol=1e-13)


def emitted(framework: str, **more):
    return settings(framework, TARGET, largest=LARGEST, dataset_size=SAMPLES, **more)


def test_pytorch_runs_the_plan_as_it_is():
    scope = names_of(emitted("pytorch"))
    assert scope["PLAN"].pieces_by_rank == ((4, 4, 4, 4, 2),)
    model, (x, y) = small_model(), data()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    step = scope["make_step"](model, optimizer, loss_of)
    for i in range(3):
        step((x[i * TARGET : (i + 1) * TARGET], y[i * TARGET : (i + 1) * TARGET]))
    assert_as_whole_batches(model, 3)


@needs("lightning")
@pytest.mark.parametrize("scheduled", [False, True], ids=["trainer", "callback"])
@pytest.mark.filterwarnings("ignore")
def test_lightning(tmp_path, scheduled):
    import lightning
    from lightning.pytorch.callbacks import GradientAccumulationScheduler

    scope = names_of(emitted("lightning"))

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = small_model()
            self.sizes = []

        def training_step(self, batch, _index):
            self.sizes.append(len(batch[0]))
            return loss_of(self.inner, batch)

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=RATE)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
            return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    options = dict(scope["TRAINER"])
    callbacks = []
    if scheduled:
        del options["accumulate_grad_batches"]
        callbacks = [GradientAccumulationScheduler(scope["SCHEDULE"])]
    trainer = lightning.Trainer(
        **options,
        callbacks=callbacks,
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    module = Module()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data()), **scope["LOADER"])
    trainer.fit(module, loader)
    assert module.sizes == [3] * 18  # the 6 samples over are left out by limit_train_batches
    assert trainer.global_step == 3
    assert trainer.lr_scheduler_configs[0].scheduler.last_epoch == 3
    assert_as_whole_batches(module.inner, 3)


@needs("lightning")
@pytest.mark.filterwarnings("ignore")
def test_lightning_divides_a_partial_window_by_the_full_count(tmp_path):
    """The comment's warning is true: without the limit the last update is too small."""
    import lightning

    scope = names_of(emitted("lightning"))

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = small_model()

        def training_step(self, batch, _index):
            return loss_of(self.inner, batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=RATE)

    options = {k: v for k, v in scope["TRAINER"].items() if k != "limit_train_batches"}
    trainer = lightning.Trainer(
        **options,
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    module = Module()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data()), **scope["LOADER"])
    trainer.fit(module, loader)
    assert trainer.global_step == 4
    before = whole_batch_updates(3)
    model = small_model()
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), before, strict=True):
            parameter.copy_(value)
    x, y = data()
    loss_of(model, (x[54:], y[54:])).backward()
    for found, old, new in zip(module.inner.parameters(), before, model.parameters(), strict=True):
        wanted = old - RATE * new.grad * 2 / 6  # two pieces of the six that it divides by
        torch.testing.assert_close(found.detach(), wanted, rtol=1e-12, atol=1e-13)


@needs("accelerate")
@pytest.mark.filterwarnings("ignore")
def test_accelerate():
    import accelerate

    scope = names_of(emitted("accelerate"))
    accelerator = accelerate.Accelerator(cpu=True, **scope["ACCELERATOR"])
    model = small_model()
    dataset = torch.utils.data.TensorDataset(*(part[:54] for part in data()))
    scheduler_free = torch.optim.SGD(model.parameters(), lr=RATE)
    model, optimizer, loader = accelerator.prepare(
        model, scheduler_free, torch.utils.data.DataLoader(dataset, **scope["LOADER"])
    )
    updates = 0
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(loss_of(model, batch))
            updates += accelerator.sync_gradients
            optimizer.step()
            optimizer.zero_grad()
    assert updates == 3
    assert_as_whole_batches(accelerator.unwrap_model(model), 3)


@needs("transformers")
@needs("accelerate")
@pytest.mark.filterwarnings("ignore")
def test_hf(tmp_path):
    import transformers

    scope = names_of(emitted("hf"))

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = small_model()
            self.sizes = []

        def forward(self, x, labels):
            self.sizes.append(len(x))
            return {"loss": loss_of(self.inner, (x, labels))}

    class InOrder(transformers.Trainer):
        def _get_train_sampler(self, dataset=None):
            return torch.utils.data.SequentialSampler(dataset or self.train_dataset)

    options = scope["TRAINING_ARGUMENTS"]
    assert set(options) <= set(inspect.signature(transformers.TrainingArguments).parameters)
    x, y = data()
    model = Model()
    trainer = InOrder(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=str(tmp_path),
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            **options,
        ),
        train_dataset=[{"x": x[i], "labels": y[i]} for i in range(SAMPLES)],
        optimizers=(torch.optim.SGD(model.parameters(), lr=RATE), None),
    )
    trainer.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(trainer.optimizer, lambda _: 1.0)
    trainer.train()
    assert trainer.state.global_step == options["max_steps"] == 3
    assert model.sizes == [3] * 18
    assert_as_whole_batches(model.inner, 3)


def test_autocast_and_clipping_are_carried_over():
    spec = {"precision": AMP_BF16, "clip_norm": 0.5}
    assert names_of(emitted("lightning", **spec))["TRAINER"]["precision"] == "bf16-mixed"
    assert names_of(emitted("lightning", **spec))["TRAINER"]["gradient_clip_val"] == 0.5
    assert names_of(emitted("hf", **spec))["TRAINING_ARGUMENTS"]["bf16"] is True
    assert names_of(emitted("hf"))["TRAINING_ARGUMENTS"]["max_grad_norm"] == 0.0
    assert names_of(emitted("accelerate", **spec))["ACCELERATOR"]["mixed_precision"] == "bf16"

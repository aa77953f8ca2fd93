"""With a real transformers Trainer: what bsprof runs is what it runs."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.errors import UsageError
from bsprof.records import Mode, Precision, WorkloadSpec
from bsprof.workloads.training import Training, build_training
from bsprof.workloads.workload import Workload

# Importing transformers takes seconds; what it warns of is its own.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

MAJOR = int(transformers.__version__.split(".")[0])
CHECKPOINTING = "activation_checkpointing" if MAJOR >= 5 else "gradient_checkpointing"


def texts(count: int = 30) -> list[dict[str, Any]]:
    """Samples of 4 to 19 tokens with a column that no model takes."""
    generator = torch.Generator().manual_seed(0)
    samples = []
    for number in range(count):
        length = int(torch.randint(4, 20, (1,), generator=generator))
        tokens = torch.randint(1, 100, (length,), generator=generator).tolist()
        samples.append({"title": f"text {number}", "input_ids": tokens, "labels": tokens})
    return samples


def pad(samples: list[dict[str, Any]]) -> dict[str, Tensor]:
    """Pads, and insists that unused columns were removed."""
    assert not any("title" in sample for sample in samples)
    longest = max(len(sample["input_ids"]) for sample in samples)
    rows = [sample["input_ids"] + [0] * (longest - len(sample["input_ids"])) for sample in samples]
    ids = torch.tensor(rows)
    mask = (ids != 0).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def model() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_embd=32, n_head=2, vocab_size=100, n_positions=32, bos_token_id=1,
        eos_token_id=1, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)  # type: ignore[no-any-return]


def make_trainer(
    folder: Path,
    *,
    kind: Any = transformers.Trainer,
    parts: dict[str, Any] | None = None,
    **settings: Any,
) -> Any:
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "out"), use_cpu=True, report_to=[], disable_tqdm=True, **settings
    )
    given = {"train_dataset": texts(), "data_collator": pad} | (parts or {})
    if "model_init" not in given:
        given.setdefault("model", model())
    return kind(args=arguments, **given)


def build(workload: Workload, **options: Any) -> Training:
    return build_training(WorkloadSpec(model="theirs", **options), workload, "cpu")


def own_loss(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
    assert num_items_in_batch is None
    return F.cross_entropy(outputs.logits.flatten(0, 1), labels.flatten()) * 3


class OwnTrainer(transformers.Trainer):  # type: ignore[misc]
    """Overrides compute_loss as people do."""

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, **_options: Any
    ) -> Any:
        outputs = model(**inputs)
        loss = outputs.loss + outputs.logits.square().mean()
        return (loss, outputs) if return_outputs else loss


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ({}, {}),
        ({"label_smoothing_factor": 0.1}, {}),
        ({CHECKPOINTING: True}, {}),
        ({"bf16": True}, {}),
        ({}, {"parts": {"compute_loss_func": own_loss}}),
        ({}, {"kind": OwnTrainer}),
    ],
    ids=["plain", "smoothing", "checkpointing", "bf16", "loss-function", "subclass"],
)
def test_gradient_is_that_of_the_trainers_own_step(
    tmp_path: Path, settings: dict[str, Any], more: dict[str, Any]
) -> None:
    precision = Precision.AMP_BF16 if "bf16" in settings else Precision.FP32
    training = build(
        Workload.from_trainer(make_trainer(tmp_path, **settings, **more)), precision=precision
    )
    batch = training.make_batch(5)
    training.micro_step(copy.copy(batch), 1.0)

    theirs = make_trainer(tmp_path, **settings, **more)
    theirs.create_optimizer()
    theirs.current_gradient_accumulation_steps = 1  # what Trainer.train sets
    theirs.training_step(theirs.accelerator.prepare(theirs.model), batch)
    for ours, other in zip(training.model.parameters(), theirs.model.parameters(), strict=True):
        assert torch.equal(ours.grad, other.grad)  # type: ignore[arg-type]


def test_optimizer_is_the_trainers(tmp_path: Path) -> None:
    training = build(Workload.from_trainer(make_trainer(tmp_path, weight_decay=0.1)))
    assert training.facts.optimizer == "AdamW"
    assert training.optimizer is not None
    assert [group["weight_decay"] for group in training.optimizer.param_groups] == [0.1, 0.0]
    sgd = build(Workload.from_trainer(make_trainer(tmp_path, optim="sgd", learning_rate=0.5)))
    assert sgd.facts.optimizer == "SGD"
    assert sgd.optimizer is not None
    assert sgd.optimizer.param_groups[0]["lr"] == 0.5

    net = model()
    given = torch.optim.RMSprop(net.parameters())
    trainer = make_trainer(tmp_path, parts={"model": net, "optimizers": (given, None)})
    assert build(Workload.from_trainer(trainer)).optimizer is given


def test_model_init_gives_a_fresh_model_and_its_optimizer(tmp_path: Path) -> None:
    workload = Workload.from_trainer(make_trainer(tmp_path, parts={"model_init": model}))
    for _ in range(2):
        training = build(workload)
        before = [parameter.clone() for parameter in training.model.parameters()]
        training.micro_step(training.make_batch(2), 1.0)
        assert training.optimizer_step()
        assert any(
            not torch.equal(old, new)
            for old, new in zip(before, training.model.parameters(), strict=True)
        )
    assert workload.model() is not workload.model()


def test_batches_are_of_the_training_loader(tmp_path: Path) -> None:
    workload = Workload.from_trainer(make_trainer(tmp_path))
    lengths = sorted(len(sample["input_ids"]) for sample in texts())
    batch = workload.batch(3, torch.device("cpu"))
    assert batch["attention_mask"].sum(1).tolist() == lengths[-3:]
    assert workload.dataset_size == 30
    assert workload.tokens_per_sample == round(sum(lengths) / 30)
    assert workload.count is not None
    assert workload.count(batch) == sum(lengths[-3:])


def test_evaluation_runs_the_loss_in_evaluation_mode(tmp_path: Path) -> None:
    parts = {"train_dataset": None, "eval_dataset": texts(9)}
    workload = Workload.from_trainer(make_trainer(tmp_path, parts=parts))
    training = build(workload, mode=Mode.INFER)
    assert training.facts.dataset_size == 9
    seen = []
    training.model.register_forward_hook(
        lambda module, _inputs, output: seen.append((module.training, output.loss.is_inference()))
    )
    training.micro_step(training.make_batch(4), 1.0)
    assert seen == [(False, True)]


def test_precision_that_disagrees_is_refused(tmp_path: Path) -> None:
    training = build(Workload.from_trainer(make_trainer(tmp_path, bf16=True)))
    with pytest.raises(UsageError, match="arguments ask for bf16"):
        training.micro_step(training.make_batch(2), 1.0)


def test_the_trainers_own_step_needs_no_note_but_another_does(tmp_path: Path) -> None:
    of_lengths = ["tokens-at-the-mean"]
    trainers_own = Workload.from_trainer(make_trainer(tmp_path)).notes
    assert [note.code for note in trainers_own] == of_lengths
    own = type("Noisy", (transformers.Trainer,), {"training_step": lambda _self: None})
    notes = Workload.from_trainer(make_trainer(tmp_path, kind=own)).notes
    assert sorted(note.code for note in notes) == [*of_lengths, "trainer-step"]


def test_adapters_of_peft_are_what_is_trained(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    lora = peft.get_peft_model(model(), peft.LoraConfig(r=4, target_modules=["c_attn"]))
    trainer = make_trainer(tmp_path, parts={"model": lora, "data_collator": pad})
    training = build(Workload.from_trainer(trainer))
    training.micro_step(training.make_batch(2), 1.0)
    assert training.optimizer_step()
    # Two matrices of rank 4, from 32 and to 96, in each of two layers.
    assert training.facts.trainable_parameter_count == 2 * 4 * (32 + 96)

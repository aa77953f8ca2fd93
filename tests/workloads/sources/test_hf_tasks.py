from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.sources.hf_sizes import prepare, read_sizes
from bsprof.workloads.sources.hf_tasks import IGNORED, TASKS, Batch, Sizes, Task, heads_of

SIZES = Sizes(seq_len=50, vocabulary=7, padding=3, mask=6, labels=4)


def task_of(head: str) -> Task:
    (task,) = (task for task in TASKS if task.head == head)
    return task


def made(head: str, sizes: Sizes = SIZES, seed: int = 0) -> Batch:
    return task_of(head).make(sizes, 5, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.head)
def test_batches_have_the_size_and_differ_by_seed(task: Task) -> None:
    one, again, other = (task.make(SIZES, 5, torch.Generator().manual_seed(k)) for k in (0, 0, 1))
    for key, value in one.items():
        assert value.shape[0] == 5
        assert torch.equal(value, again[key])
    first = next(iter(one))
    assert not torch.equal(one[first], other[first])


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.head)
def test_text_has_no_padding_and_covers_the_vocabulary(task: Task) -> None:
    if task.of_images:
        assert "input_ids" not in made(task.head)
        return
    tokens = made(task.head)["input_ids"]
    assert tokens.shape == (5, 50)
    assert set(tokens.unique().tolist()) == {0, 1, 2, 4, 5, 6}


def test_causal_labels_are_the_tokens_and_one_a_sample_has_none_before_it() -> None:
    batch = made("AutoModelForCausalLM")
    assert torch.equal(batch["labels"], batch["input_ids"])
    tokens = task_of("AutoModelForCausalLM").tokens
    assert tokens is not None
    assert tokens(batch["labels"]) == 5 * 49


def test_masked_tokens_and_only_those_have_labels() -> None:
    batch = made("AutoModelForMaskedLM")
    chosen = batch["labels"] != IGNORED
    assert bool(chosen[:, 0].all())
    assert bool((batch["input_ids"][chosen] == 6).all())
    assert 0.08 < float(chosen.float().mean()) < 0.25
    tokens = task_of("AutoModelForMaskedLM").tokens
    assert tokens is not None
    assert tokens(batch["labels"]) == int(chosen.sum())


def test_pairs_are_as_long_as_each_other() -> None:
    batch = made("AutoModelForSeq2SeqLM")
    assert batch["labels"].shape == batch["input_ids"].shape
    assert not torch.equal(batch["labels"], batch["input_ids"])


def test_one_end_closes_every_sequence() -> None:
    sizes = Sizes(seq_len=50, vocabulary=7, padding=1, end=2)
    tokens = made("AutoModelForSequenceClassification", sizes)["input_ids"]
    assert bool((tokens[:, -1] == 2).all())
    assert bool(((tokens == 2).sum(dim=1) == 1).all())


@pytest.mark.parametrize(
    ("problem", "labels", "shape", "dtype"),
    [
        ("single_label_classification", 4, (5,), torch.int64),
        ("multi_label_classification", 4, (5, 4), torch.float32),
        ("regression", 1, (5,), torch.float32),
        ("regression", 3, (5, 3), torch.float32),
    ],
)
def test_labels_follow_the_kind_of_problem(
    problem: str, labels: int, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    sizes = Sizes(seq_len=8, vocabulary=7, labels=labels, problem=problem)
    for head in ("AutoModelForSequenceClassification", "AutoModelForImageClassification"):
        found = made(head, sizes)["labels"]
        assert found.shape == shape
        assert found.dtype == dtype
        assert float(found.float().max()) < max(labels, 5)


def test_answers_end_after_they_start() -> None:
    batch = made("AutoModelForQuestionAnswering")
    assert bool((batch["start_positions"] <= batch["end_positions"]).all())
    assert int(batch["end_positions"].max()) < 50


def test_heads_of_a_type_in_order_each_once() -> None:
    tables = SimpleNamespace(**{task.mapping: {} for task in TASKS})
    tables.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = {"bart": "BartForCausalLM"}
    tables.MODEL_FOR_MASKED_LM_MAPPING_NAMES = {"bart": "BartForConditionalGeneration"}
    tables.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES = {"bart": "BartForConditionalGeneration"}
    tables.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES = {"deit": ("DeiTOne", "DeiTTwo")}
    heads = heads_of("bart", tables)
    assert list(heads) == ["BartForConditionalGeneration", "BartForCausalLM"]
    assert heads["BartForConditionalGeneration"].head == "AutoModelForSeq2SeqLM"
    assert list(heads_of("deit", tables)) == ["DeiTOne", "DeiTTwo"]
    assert not heads_of("other", tables)


def config(**fields: Any) -> SimpleNamespace:
    values = {
        "model_type": "bert",
        "vocab_size": 99,
        "num_labels": 2,
        "max_position_embeddings": 64,
        "is_encoder_decoder": False,
        "use_cache": True,
        "pad_token_id": None,
        "eos_token_id": [5, 6],
    }
    return SimpleNamespace(**(values | fields))


def sizes(head: str, fields: dict[str, Any], **options: Any) -> Sizes:
    task, theirs = task_of(head), config(**fields)
    prepare(theirs, task, keep_cache=False)
    return read_sizes(WorkloadSpec(model="hf:mine", **options), theirs, task)


def test_cache_padding_and_start_are_set_where_training_needs_them() -> None:
    theirs = config()
    prepare(theirs, task_of("AutoModelForCausalLM"), keep_cache=False)
    assert (theirs.use_cache, theirs.pad_token_id) == (False, None)
    theirs = config(is_encoder_decoder=True)
    prepare(theirs, task_of("AutoModelForSequenceClassification"), keep_cache=True)
    assert (theirs.use_cache, theirs.pad_token_id) == (True, 0)
    assert theirs.decoder_start_token_id == 0


def test_default_length_is_that_of_the_positions_up_to_a_limit() -> None:
    causal, masked = "AutoModelForCausalLM", "AutoModelForMaskedLM"
    assert sizes(causal, {}).seq_len == 64
    assert sizes(causal, {"max_position_embeddings": 131072}).seq_len == 1024
    assert sizes(masked, {"max_position_embeddings": 8192}).seq_len == 512
    assert sizes(masked, {"max_position_embeddings": -1}).seq_len == 512
    roberta = {"model_type": "roberta", "max_position_embeddings": 66, "pad_token_id": 1}
    assert sizes(masked, roberta).seq_len == 64
    with pytest.raises(UsageError, match="longer than hf:mine has positions, 64"):
        sizes(masked, roberta, seq_len=65)
    assert sizes(masked, {"max_position_embeddings": None}, seq_len=4000).seq_len == 4000


def test_special_tokens_and_problems() -> None:
    found = sizes("AutoModelForMaskedLM", {})
    assert (found.mask, found.end, found.vocabulary) == (98, None, 99)
    assert sizes("AutoModelForMaskedLM", {"mask_token_id": 0}).mask == 0
    pairs = sizes("AutoModelForSequenceClassification", {"is_encoder_decoder": True})
    assert (pairs.end, pairs.padding) == (5, 0)
    assert sizes("AutoModelForSequenceClassification", {"num_labels": 1}).problem == "regression"
    several = {"problem_type": "multi_label_classification", "num_labels": 3}
    found = sizes("AutoModelForSequenceClassification", several)
    assert (found.problem, found.labels) == ("multi_label_classification", 3)


def test_configuration_without_a_vocabulary_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot make text for hf:mine"):
        sizes("AutoModelForCausalLM", {"vocab_size": None})


@pytest.mark.parametrize(
    ("fields", "asked", "image"),
    [
        ({"image_size": 32}, None, (3, 32, 32)),
        ({"image_size": (32, 48), "num_channels": 1}, None, (1, 32, 48)),
        ({}, None, (3, 224, 224)),
        ({}, 96, (3, 96, 96)),
    ],
)
def test_images_have_the_size_of_the_configuration(
    fields: dict[str, Any], asked: int | None, image: tuple[int, int, int]
) -> None:
    found = sizes("AutoModelForImageClassification", fields, image_size=asked)
    assert found.image == image

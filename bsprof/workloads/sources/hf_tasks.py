"""What Hugging Face models are trained on here: random data and the loss of each kind of head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

IGNORED = -100  # transformers' label for a token without loss
MASKED_SHARE = 0.15  # BERT's: Devlin et al. 2019, arXiv 1810.04805, section 3.1
CAUSAL_SEQ_LEN = 1024
"""Longest default sequence of a causal language model: block size of transformers' `run_clm.py`."""
SEQ_LEN = 512
"""That of the others: BERT's and T5's longest."""
IMAGE_SIZE = 224
"""Pixels per side where a configuration names none."""

Batch = dict[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What the data depends on.

    Attributes:
        seq_len: Tokens of a sample; 0 for images.
        image: Channels, height and width of an image.
        vocabulary: Number of tokens.
        padding: The token that pads, which data has none of; None where there is none.
        end: The token that ends a sequence, None where there is none.
        mask: The token that stands for a masked one.
        labels: Number of classes.
        problem: transformers' `problem_type`: what the labels of a sequence are.
    """

    seq_len: int = 0
    image: tuple[int, int, int] = (3, IMAGE_SIZE, IMAGE_SIZE)
    vocabulary: int = 1
    padding: int | None = None
    end: int | None = None
    mask: int = 0
    labels: int = 2
    problem: str = "single_label_classification"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A kind of head.

    Attributes:
        words: What it is trained for.
        head: The `AutoModelFor...` that builds it.
        mapping: Name of transformers' table from types of models to its classes.
        make: `make(sizes, micro_batch_size, generator)` makes a batch on the CPU.
        of_images: Whether it takes images; else text.
        longest: Most tokens of a sample by default.
        tokens: `tokens(labels)`: tokens that the loss of a batch averages over; None for one
            label a sample.
        pads: Whether the model must know a token that pads.
    """

    words: str
    head: str
    mapping: str
    make: Callable[[Sizes, int, torch.Generator], Batch]
    of_images: bool = False
    longest: int = SEQ_LEN
    tokens: Callable[[Tensor], int] | None = None
    pads: bool = False


def text(sizes: Sizes, micro_batch_size: int, generator: torch.Generator) -> Tensor:
    """Random tokens (b, seq_len), none of them padding; all samples are of full length."""
    tokens = torch.randint(sizes.vocabulary, (micro_batch_size, sizes.seq_len), generator=generator)
    if sizes.padding is None:
        return tokens
    return torch.where(tokens == sizes.padding, (tokens + 1) % sizes.vocabulary, tokens)


def causal(sizes: Sizes, micro_batch_size: int, generator: torch.Generator) -> Batch:
    """Every token is predicted from those before it; transformers shifts the labels itself."""
    tokens = text(sizes, micro_batch_size, generator)
    return {"input_ids": tokens, "labels": tokens.clone()}


def masked(sizes: Sizes, micro_batch_size: int, generator: torch.Generator) -> Batch:
    """Some tokens are masked, the first always, and those are predicted."""
    tokens = text(sizes, micro_batch_size, generator)
    chosen = torch.rand(tokens.shape, generator=generator) < MASKED_SHARE
    chosen[:, 0] = True  # a loss over no token at all would not be a number
    return {
        "input_ids": tokens.masked_fill(chosen, sizes.mask),
        "labels": tokens.masked_fill(~chosen, IGNORED),
    }


def pairs(sizes: Sizes, micro_batch_size: int, generator: torch.Generator) -> Batch:
    """A sequence and the one to be written from it, of the same length."""
    return {
        "input_ids": text(sizes, micro_batch_size, generator),
        "labels": text(sizes, micro_batch_size, generator),
    }


def labelled_text(sizes: Sizes, micro_batch_size: int, generator: torch.Generator) -> Batch:
    """Sequences with labels as transformers' `problem_type` has them."""
    tokens = text(sizes, micro_batch_size, generator)
    if sizes.end is not None:
        # Models with a decoder classify at the last end of a sequence and need equally many.
        tokens = torch.where(tokens == sizes.end, (tokens + 1) % sizes.vocabulary, tokens)
        tokens[:, -1] = sizes.end
    return {"input_ids": tokens, "labels": _labels(sizes, micro_batch_size, generator)}


def labelled_tokens(sizes: Sizes, micro_batch_size: int, generator: torch.Generator) -> Batch:
    """Sequences with a class for every token."""
    tokens = text(sizes, micro_batch_size, generator)
    labels = torch.randint(sizes.labels, tokens.shape, generator=generator)
    return {"input_ids": tokens, "labels": labels}


def answers(sizes: Sizes, micro_batch_size: int, generator: torch.Generator) -> Batch:
    """Sequences with the place where an answer starts and ends."""
    shape = (micro_batch_size,)
    places = torch.randint(sizes.seq_len, (2, *shape), generator=generator).sort(dim=0).values
    return {
        "input_ids": text(sizes, micro_batch_size, generator),
        "start_positions": places[0],
        "end_positions": places[1],
    }


def labelled_images(sizes: Sizes, micro_batch_size: int, generator: torch.Generator) -> Batch:
    """Normal images (b, channels, height, width) with labels."""
    images = torch.randn(micro_batch_size, *sizes.image, generator=generator)
    return {"pixel_values": images, "labels": _labels(sizes, micro_batch_size, generator)}


def _labels(sizes: Sizes, micro_batch_size: int, generator: torch.Generator) -> Tensor:
    """Classes (b,), one number or several (b, labels), by the kind of problem."""
    several = (micro_batch_size, sizes.labels)
    if sizes.problem == "regression":
        shape = several if sizes.labels > 1 else several[:1]
        return torch.randn(shape, generator=generator)
    if sizes.problem == "multi_label_classification":
        return torch.randint(2, several, generator=generator).float()
    return torch.randint(sizes.labels, several[:1], generator=generator)


def _all_tokens(labels: Tensor) -> int:
    return labels.numel()


def _shifted_tokens(labels: Tensor) -> int:
    return labels[:, 1:].numel()


def _chosen_tokens(labels: Tensor) -> int:
    return int((labels != IGNORED).sum())


TASKS = (
    Task(
        words="sequence-to-sequence language model",
        head="AutoModelForSeq2SeqLM",
        mapping="MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
        make=pairs,
        tokens=_all_tokens,
    ),
    Task(
        words="masked language model",
        head="AutoModelForMaskedLM",
        mapping="MODEL_FOR_MASKED_LM_MAPPING_NAMES",
        make=masked,
        tokens=_chosen_tokens,
    ),
    Task(
        words="causal language model",
        head="AutoModelForCausalLM",
        mapping="MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
        make=causal,
        longest=CAUSAL_SEQ_LEN,
        tokens=_shifted_tokens,
    ),
    Task(
        words="image classification",
        head="AutoModelForImageClassification",
        mapping="MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
        make=labelled_images,
        of_images=True,
    ),
    Task(
        words="sequence classification",
        head="AutoModelForSequenceClassification",
        mapping="MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
        make=labelled_text,
        pads=True,
    ),
    Task(
        words="token classification",
        head="AutoModelForTokenClassification",
        mapping="MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
        make=labelled_tokens,
        tokens=_all_tokens,
    ),
    Task(
        words="question answering",
        head="AutoModelForQuestionAnswering",
        mapping="MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES",
        make=answers,
    ),
)
"""Kinds of heads; a configuration that names none gets the first that its type of model has."""


def heads_of(model_type: str, tables: Any) -> Mapping[str, Task]:
    """Classes of transformers for a type of model, with their tasks, in the order of `TASKS`.

    Args:
        model_type: The configuration's.
        tables: transformers' module `models.auto.modeling_auto`.
    """
    heads: dict[str, Task] = {}
    for task in TASKS:
        for name in classes_of(getattr(tables, task.mapping), model_type):
            heads.setdefault(name, task)
    return heads


def classes_of(table: Mapping[str, Any], model_type: str) -> tuple[str, ...]:
    """Names of classes in one of transformers' tables, which has one, several or none a type."""
    names = table.get(model_type, ())
    return (names,) if isinstance(names, str) else tuple(names)

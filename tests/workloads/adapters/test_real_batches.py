from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    SubsetRandomSampler,
    TensorDataset,
)

from bsprof.errors import WorkloadError
from bsprof.records import Mode, WorkloadSpec
from bsprof.workloads.training import Training, build_training
from bsprof.workloads.workload import Workload

CPU = torch.device("cpu")


class Texts(Dataset[dict[str, Any]]):
    """Sample i has `lengths[i]` tokens; remembers what was read."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.read.append(index)
        return {"index": index, "input_ids": list(range(self.lengths[index])), "label": index % 3}


class Stream(IterableDataset[Tensor]):
    """Rows of growing length, from the start each time."""

    def __iter__(self) -> Iterator[Tensor]:
        return iter(torch.ones(n) for n in range(1, 9))


def pad(samples: list[dict[str, Any]]) -> dict[str, Tensor]:
    """Pads token lists to the longest."""
    longest = max(len(sample["input_ids"]) for sample in samples)
    shape = (len(samples), longest)
    batch = {"input_ids": torch.zeros(shape).long(), "attention_mask": torch.zeros(shape).long()}
    for row, sample in enumerate(samples):
        batch["input_ids"][row, : len(sample["input_ids"])] = torch.tensor(sample["input_ids"])
        batch["attention_mask"][row, : len(sample["input_ids"])] = 1
    batch["labels"] = torch.tensor([sample["label"] for sample in samples])
    batch["index"] = torch.tensor([sample["index"] for sample in samples])
    return batch


def embed() -> nn.Module:
    return nn.EmbeddingBag(2000, 3)


def embed_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch["input_ids"]), batch["labels"])


def texts(data: Any, **options: Any) -> Workload:
    return Workload.from_batches(embed, data, loss=embed_loss, **options)


def indices(workload: Workload, size: int) -> list[int]:
    return sorted(workload.batch(size, CPU)["index"].tolist())


def build(workload: Workload, **options: Any) -> Training:
    return build_training(WorkloadSpec(model="theirs", **options), workload, "cpu")


LENGTHS = [(37 * i) % 101 + 1 for i in range(100)]
"""One to a hundred and one, mixed."""


def by_length() -> list[int]:
    return sorted(range(100), key=lambda i: (LENGTHS[i], i))


def test_longest_takes_the_longest_of_all() -> None:
    workload = texts(Texts(LENGTHS), collate=pad)
    for size in (1, 7, 100):
        assert indices(workload, size) == sorted(by_length()[-size:])
    assert workload.batch(3, CPU)["input_ids"].shape == (3, max(LENGTHS))
    assert workload.dataset_size == 100
    assert [note.code for note in workload.notes] == ["tokens-at-the-mean"]
    assert "counts as 51 tokens" in workload.notes[0].message
    with pytest.raises(WorkloadError, match="batch of 101 samples"):
        workload.batch(101, CPU)


def test_longest_is_found_in_a_data_set_sorted_by_length() -> None:
    workload = texts(Texts([10] * 90 + [1000] * 10), collate=pad)
    assert workload.batch(4, CPU)["input_ids"].shape == (4, 1000)


def test_a_percentile_is_never_passed_while_shorter_ones_are_left() -> None:
    workload = texts(Texts(LENGTHS), collate=pad, lengths="p90")
    assert indices(workload, 8) == sorted(by_length()[82:90])
    assert indices(workload, 95) == sorted(by_length()[:95])
    note, _ = workload.notes
    assert note.code == "batches-by-length"
    assert "up to the length at p90 among 100 examined of 100 (1 to 101 elements)" in note.message


def test_only_so_many_are_examined_and_the_note_says_so() -> None:
    data = Texts([n % 50 + 5 for n in range(5000)] + [900])
    workload = texts(data, collate=pad, examined=150, length=lambda s: len(s["input_ids"]) + 1)
    assert len(set(data.read)) == 150
    note, _ = workload.notes
    assert "the longest samples among 150 examined of 5,001 (6 to 55 elements)" in note.message
    assert "longer ones take more memory" in note.message


def test_where_the_first_are_alike_the_rest_are_not_examined() -> None:
    data = Texts([5] * 5000)
    workload = texts(data, collate=pad)
    assert len(set(data.read)) == 64
    (note,) = workload.notes
    assert "among 64 examined of 5,000 (all of 5 elements)" in note.message
    assert len(indices(workload, 600)) == 600
    assert workload.tokens_per_sample == 5
    few = Texts([5] * 60)
    assert texts(few, collate=pad, lengths="p50").notes == ()
    unknown = Workload.from_batches(embed, range(5000), loss=embed_loss, examined=10)
    assert "10 examined of 5,000 (their lengths are unknown)" in unknown.notes[0].message


def test_histogram_draws_anew_each_time_with_its_seed() -> None:
    one, same, other = (
        texts(Texts(LENGTHS), collate=pad, lengths="histogram", seed=seed) for seed in (3, 3, 4)
    )
    first, second = indices(one, 10), indices(one, 10)
    assert first != second
    assert [indices(same, 10), indices(same, 10)] == [first, second]
    assert indices(other, 10) != first
    (note,) = one.notes
    assert note.code == "batches-as-drawn"
    assert "lengths='longest'" in note.hint


def test_tokens_are_counted_and_their_mean_is_that_of_the_samples() -> None:
    workload = texts(Texts(LENGTHS), collate=pad, lengths="histogram")
    assert workload.count is not None
    assert workload.tokens_per_sample == round(sum(LENGTHS) / 100)
    batch = workload.batch(4, CPU)
    assert workload.count(batch) == batch["attention_mask"].sum()
    assert build(workload).facts.tokens_per_sample == round(sum(LENGTHS) / 100)


def test_own_count_comes_first() -> None:
    workload = texts(Texts(LENGTHS), collate=pad, count=lambda batch: 2 * batch["labels"].numel())
    assert workload.tokens_per_sample == 2
    samples = texts(Texts(LENGTHS), collate=pad, count=lambda batch: batch["labels"].numel())
    assert samples.tokens_per_sample is None


def test_loader_gives_its_data_set_and_collate_function_not_its_size() -> None:
    loader = DataLoader(Texts(LENGTHS), batch_size=2, collate_fn=pad, shuffle=True, num_workers=2)
    workload = texts(loader)
    assert indices(workload, 30) == sorted(by_length()[-30:])
    other = texts(loader, collate=lambda samples: {"index": torch.tensor([len(samples)])})
    assert other.batch(5, CPU)["index"].tolist() == [5]


def test_sampler_of_a_subset_is_honoured() -> None:
    part = SubsetRandomSampler([3, 5, 8, 13, 21])
    workload = texts(DataLoader(Texts(LENGTHS), batch_size=2, sampler=part, collate_fn=pad))
    assert workload.dataset_size == 5
    assert indices(workload, 5) == [3, 5, 8, 13, 21]


@pytest.mark.parametrize("lengths", ["longest", "p50", "histogram"])
def test_iterables_are_read_from_their_start(lengths: str) -> None:
    workload = Workload.from_batches(
        lambda: nn.Linear(1, 1),
        Stream(),
        loss=lambda model, batch: model(batch[:, :1]).mean(),
        lengths=lengths,
        collate=lambda rows: nn.utils.rnn.pad_sequence(rows, batch_first=True),
    )
    assert workload.dataset_size is None
    assert bool(workload.notes) is (lengths != "longest")
    assert workload.batch(2, CPU).shape == (2, {"longest": 8, "p50": 4, "histogram": 2}[lengths])
    with pytest.raises(WorkloadError, match="the data set has 8"):
        workload.batch(9, CPU)


def test_a_list_of_samples_a_function_and_a_model_object_will_do() -> None:
    model = nn.Linear(4, 2)
    data = [(torch.randn(4), 1), (torch.randn(4), 0), (torch.randn(4), 1)]

    def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    workload = Workload.from_batches(model, lambda: data, loss=loss, dataset_size=2)
    assert workload.model() is model
    assert workload.dataset_size == 2
    training = build(workload)
    training.micro_step(training.make_batch(3), 1.0)
    assert training.optimizer_step()


def test_gradient_is_that_of_a_loop_over_the_loader() -> None:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(12, 4), torch.randint(3, (12,)))
    loader = DataLoader(data, batch_size=12)
    workload = Workload.from_batches(
        lambda: nn.Linear(4, 3), loader, loss=lambda m, b: F.cross_entropy(m(b[0]), b[1])
    )
    training = build(workload)
    training.micro_step(training.make_batch(12), 1.0)
    (x, y), model = next(iter(loader)), nn.Linear(4, 3)
    model.load_state_dict(training.model.state_dict())
    F.cross_entropy(model(x), y).backward()
    for ours, theirs in zip(training.model.parameters(), model.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-6)  # type: ignore[arg-type]


def test_inference_runs_the_loss_in_evaluation_mode() -> None:
    modes = []

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        modes.append((model.training, torch.is_inference_mode_enabled()))
        return embed_loss(model, batch)

    workload = Workload.from_batches(embed, Texts(LENGTHS), loss=loss, collate=pad)
    training = build(workload, mode=Mode.INFER)
    training.micro_step(training.make_batch(5), 1.0)
    assert modes == [(False, True)]


class Unsized(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize(
    ("data", "found", "advice"),
    [
        ({"train": [1], "test": [2]}, "a dict with keys train, test", "one of its entries"),
        ((torch.zeros(3), torch.zeros(3)), "a tuple", "TensorDataset"),
        (Unsized(), "a Unsized without __len__", "a data set of single samples"),
        (3, "a int", "a data set of single samples"),
    ],
)
def test_what_has_no_samples_is_refused(data: Any, found: str, advice: str) -> None:
    with pytest.raises(WorkloadError, match="cannot take samples") as caught:
        texts(data)
    assert caught.value.found == found
    assert advice in caught.value.next_step


@pytest.mark.parametrize("data", [[], Texts([]), iter(())])
def test_an_empty_data_set_is_refused(data: Any) -> None:
    with pytest.raises(WorkloadError, match="empty data set"):
        texts(data)


def test_no_samples_to_examine_are_refused() -> None:
    with pytest.raises(WorkloadError, match="examined=0"):
        texts(Texts(LENGTHS), collate=pad, examined=0)


def test_a_loader_whose_data_set_makes_the_batches_is_refused() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(3, 2, 4)), batch_size=None)
    with pytest.raises(WorkloadError, match="batch_size=None"):
        texts(loader)


def test_a_model_that_is_none_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"`model` must be a torch\.nn\.Module") as caught:
        Workload.from_batches(3, [torch.zeros(4)] * 2, loss=lambda m, b: m(b).mean())  # type: ignore[arg-type]
    assert caught.value.found == "a int"


def test_samples_that_do_not_stack_are_told_to_be_padded() -> None:
    data = [torch.ones(n) for n in range(3, 9)]
    workload = Workload.from_batches(
        lambda: nn.Linear(1, 1), data, loss=lambda m, b: m(b[:, :1]).mean()
    )
    training = build(workload)
    training.make_batch(1)
    with pytest.raises(WorkloadError, match="cannot make a batch of 2 samples") as caught:
        training.make_batch(2)
    assert "stack expects each tensor to be equal size" in caught.value.found
    assert "pad them" in caught.value.next_step


def test_a_collate_function_that_needs_two_counts_no_tokens() -> None:
    def pairs(samples: list[dict[str, Any]]) -> dict[str, Tensor]:
        if len(samples) < 2:
            raise ValueError("too few")
        return pad(samples)

    workload = texts(Texts(LENGTHS), collate=pairs)
    assert (workload.count, workload.tokens_per_sample) == (None, None)
    counted = texts(Texts(LENGTHS), collate=pairs, count=lambda batch: batch["labels"].numel())
    assert counted.tokens_per_sample is None
    assert indices(counted, 2) == sorted(by_length()[-2:])


def test_functions_of_the_user_that_fail_are_named() -> None:
    with pytest.raises(WorkloadError, match="`length` cannot read a sample"):
        texts(Texts(LENGTHS), collate=pad, length=lambda sample: sample["nothing"])
    with pytest.raises(WorkloadError, match="`count` cannot read a batch"):
        texts(Texts(LENGTHS), collate=pad, count=lambda batch: batch["nothing"])

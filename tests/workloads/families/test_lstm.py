from __future__ import annotations

import pytest
import torch
from torch import nn

from bsprof.accounting.counter import OperatorCounter
from bsprof.records import Mode, WorkloadSpec
from bsprof.workloads.catalogue.entries import entries
from bsprof.workloads.families.lstm import LanguageModel
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import build_training

CPU = torch.device("cpu")
SMALL = {"embedding": 24, "width": 32, "vocabulary": 64}


def language_model(model: str) -> LanguageModel:
    """A small one in evaluation."""
    spec = WorkloadSpec(model=model, seq_len=8, mode=Mode.INFER, model_options=SMALL)
    built = build_training(spec, resolve(spec), "cpu").model
    assert isinstance(built, LanguageModel)
    return built


@torch.no_grad()
def test_no_future_is_seen_and_all_of_the_past() -> None:
    model = language_model("lstm-ptb-medium")
    tokens = torch.arange(16).reshape(2, 8)
    changed = tokens.clone()
    changed[:, 5] += 20
    moved = (model(tokens) - model(changed)).abs().amax(dim=-1)
    assert bool((moved[:, :5] == 0).all())
    assert bool((moved[:, 5:] > 1e-7).all())


@torch.no_grad()
def test_layers_equal_pytorchs_stacked_lstm() -> None:
    model = language_model("lstm-ptb-medium")
    stacked = nn.LSTM(24, 32, num_layers=2, batch_first=True)
    weights = {
        name.replace("l0", f"l{index}"): value
        for index, layer in enumerate(model.layers)
        for name, value in layer.lstm.state_dict().items()
    }
    stacked.load_state_dict(weights)
    tokens = torch.arange(16).reshape(2, 8)
    expected = model.head(stacked(model.tokens(tokens))[0])
    assert torch.allclose(model(tokens), expected, atol=1e-6)


def test_tied_output_makes_the_last_layer_as_wide_as_an_embedding() -> None:
    tied, untied = language_model("awd-lstm-ptb"), language_model("lstm-ptb-medium")
    assert tied.head.weight is tied.tokens.weight
    assert untied.head.weight is not untied.tokens.weight
    widths = [(layer.lstm.input_size, layer.lstm.hidden_size) for layer in tied.layers]
    assert widths == [(24, 32), (32, 32), (32, 24)]


def test_gradients_flow_through_35_steps_by_default() -> None:
    tokens, targets = resolve(WorkloadSpec(model="lstm-ptb-large")).batch(2, CPU)
    assert tokens.shape == (2, 35)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])


@pytest.mark.parametrize(
    ("model", "millions"),
    [("lstm-ptb-medium", 20), ("lstm-ptb-large", 66), ("awd-lstm-ptb", 24)],
)
def test_counts_are_what_tables_of_results_say(model: str, millions: int) -> None:
    """Merity et al. 2017, arXiv 1708.02182, table 1, which rounds to whole millions."""
    assert round(entries()[model].parameters / 1e6) == millions


def test_flops_are_those_counted_by_hand() -> None:
    """Four gates over input and state, then the output; two backward passes of each."""
    workload = resolve(WorkloadSpec(model="lstm-ptb-medium"))
    model = workload.model()
    with OperatorCounter() as counter:
        loss = workload.loss(model, workload.batch(2, CPU))
        forward = counter.totals.model_flops
        loss.backward()  # type: ignore[no-untyped-call]
    layers = 2 * 4 * 650 * (650 + 650)
    assert forward == 2 * 2 * 35 * (layers + 650 * 10_000)
    assert counter.totals.model_flops == 3 * forward

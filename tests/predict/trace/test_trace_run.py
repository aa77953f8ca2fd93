"""The traced run: its events, marks and categories, and that the workload is as it was after."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from reduced_workloads import REDUCED

from bsprof.predict.stream import Stream
from bsprof.predict.target import Protocol, Semantics, TraceTarget, ZeroGrad
from bsprof.records import Category, Mode, Phase


def live_at(stream: Stream, position: int) -> dict[Category, int]:
    held: dict[Category, int] = dict.fromkeys(Category, 0)
    for event in stream.events[:position]:
        index = abs(event) - 1
        held[stream.categories[index]] += stream.sizes[index] if event > 0 else -stream.sizes[index]
    return held


def test_every_storage_begins_once_and_ends_at_most_once_after_that(traced):
    stream = traced("convnet", 2)
    seen: Counter[int] = Counter()
    for event in stream.events:
        seen[event] += 1
        if event < 0:
            assert seen[-event] == 1
    assert set(seen.values()) == {1}
    assert {e for e in seen if e > 0} == set(range(1, len(stream.sizes) + 1))
    assert len(stream.categories) == len(stream.modules) == len(stream.streams) == len(stream.sizes)


def test_marks_follow_the_protocol(traced):
    stream = traced("mlp", 2, protocol=Protocol(windows=(1, 2)))
    told = [(m.update, m.micro_step, m.phase) for m in stream.marks]
    assert told == [
        (-1, -1, None),
        (0, 0, Phase.FORWARD_BACKWARD),
        (0, -1, Phase.OPTIMIZER_STEP),
        (0, -1, None),
        (1, 0, Phase.FORWARD_BACKWARD),
        (1, 1, Phase.ACCUMULATION),
        (1, -1, Phase.OPTIMIZER_STEP),
        (1, -1, None),
    ]
    positions = [m.position for m in stream.marks]
    assert positions == sorted(positions)


def test_adam_keeps_two_copies_and_gradients_go_after_the_step(traced):
    stream = traced("mlp", 2)
    held = live_at(stream, len(stream.events))
    weights = live_at(stream, stream.marks[1].position)[Category.WEIGHTS]
    assert held[Category.WEIGHTS] == weights > 0
    assert held[Category.OPTIMIZER_STATE] == 2 * weights
    assert held[Category.GRADIENTS] == 0
    before_step = live_at(stream, stream.marks[-2].position)
    assert before_step[Category.GRADIENTS] == weights


@pytest.mark.parametrize(
    ("zero_grad", "kept"),
    [
        (ZeroGrad.AFTER_STEP, 0),
        (ZeroGrad.BEFORE_FORWARD, 0),
        (ZeroGrad.BEFORE_BACKWARD, 1),
    ],
)
def test_gradients_are_dropped_where_the_protocol_says(traced, zero_grad, kept):
    stream = traced("mlp", 2, protocol=Protocol(windows=(1, 1), zero_grad=zero_grad))
    second = next(m for m in stream.marks if m.update == 1 and m.micro_step == 0)
    weights = live_at(stream, stream.marks[1].position)[Category.WEIGHTS]
    activations = [
        live_at(stream, position)
        for position in range(second.position, len(stream.events))
        if stream.categories[abs(stream.events[position - 1]) - 1] is Category.ACTIVATIONS
    ]
    fullest = max(activations, key=lambda held: held[Category.ACTIVATIONS])
    assert fullest[Category.GRADIENTS] // weights == kept


def test_zeroed_gradients_stay(traced):
    stream = traced("mlp", 2, protocol=Protocol(windows=(1, 1), set_to_none=False))
    held = live_at(stream, len(stream.events))
    assert held[Category.GRADIENTS] == held[Category.WEIGHTS]


def test_a_fresh_batch_meets_the_one_before(traced):
    one = traced("mlp", 4, protocol=Protocol(windows=(2,)))
    fresh = traced("mlp", 4, protocol=Protocol(windows=(2,), fresh_batch=True))
    assert len(fresh.sizes) > len(one.sizes)
    second = next(m for m in one.marks if m.micro_step == 1)
    batch = live_at(one, second.position)[Category.ACTIVATIONS]
    assert batch > 0
    marks = [m for m in fresh.marks if m.micro_step == 1]
    assert live_at(fresh, marks[0].position)[Category.ACTIVATIONS] == batch


def test_inference_keeps_nothing(traced):
    stream = traced("vit-tiny", 2, mode=Mode.INFER)
    held = live_at(stream, len(stream.events))
    assert held[Category.GRADIENTS] == held[Category.OPTIMIZER_STATE] == 0
    assert held[Category.TEMPORARIES] == 0
    assert {m.phase for m in stream.marks} == {None, Phase.FORWARD}


def test_a_workload_is_traced_again_and_again_with_the_same_result():
    from bsprof.predict.trace.run import Tracer

    gpt2 = REDUCED["gpt2"]
    spec = replace(gpt2, lora_rank=4, activation_checkpointing="full", ema=True)
    tracer = Tracer(spec, TraceTarget())
    first = tracer.trace(2)
    other = tracer.trace(3)
    again = tracer.trace(2)
    assert other.stream != first.stream
    assert again == first


def test_operators_name_the_module_that_made_them(traced):
    stream = traced("mlp", 2)
    named = {
        (op.name, stream.module_names[op.module], op.backward)
        for op in stream.operators
        if op.phase is Phase.FORWARD_BACKWARD
    }
    assert ("aten.addmm", "0.0", False) in named
    assert ("aten.mm", "0.0", True) in named
    assert ("aten.mm", "3", False) not in named


@pytest.mark.parametrize("name", ["convnet", pytest.param("t5", marks=pytest.mark.slow)])
def test_results_that_are_known_are_those_of_the_fake_mode(monkeypatch, name):
    from bsprof.predict.trace.known import KnownResults
    from bsprof.predict.trace.run import trace_stream

    short = Protocol(windows=(1, 1))
    quick = trace_stream(REDUCED[name], 3, TraceTarget(), short).stream
    monkeypatch.setattr(KnownResults, "call", lambda _, func, args, kwargs: func(*args, **kwargs))
    assert trace_stream(REDUCED[name], 3, TraceTarget(), short).stream == quick


@pytest.mark.parametrize("semantics", list(Semantics))
def test_dropout_that_drops_nothing_is_no_copy(traced, semantics):
    stream = traced("encoder-tiny", 2, mode=Mode.INFER, semantics=semantics)
    assert "aten.linear" in {operator.name for operator in stream.operators}
    assert "aten.clone" not in {operator.name for operator in stream.operators}

"""Streams as they travel from a worker."""

from __future__ import annotations

import json
from dataclasses import replace

from bsprof.predict.stream import Operand, Operator
from bsprof.predict.trace.serial import stream_from_json, stream_to_json
from bsprof.records import Phase


def travelled(stream):
    return stream_from_json(json.loads(json.dumps(stream_to_json(stream), separators=(",", ":"))))


def test_a_stream_survives(made_run):
    stream = made_run(3)
    assert travelled(stream) == stream
    elsewhere = replace(stream, streams=(1, *stream.streams[1:]))
    assert travelled(elsewhere) == elsewhere


def test_operators_keep_types_shapes_and_kinds_of_attributes(made_run):
    def operator(**attributes):
        return Operator(
            position=4,
            name="aten.convolution",
            module=0,
            phase=None,
            backward=False,
            inputs=(
                Operand(shape=(2, 3), dtype="float32", block=1, channels_last=True),
                Operand(shape=(2, 3), dtype="bfloat16", block=-1),
                Operand(shape=(), dtype="int64"),
            ),
            outputs=(),
            attributes=attributes,
        )

    operators = (
        operator(groups=1),
        operator(groups=True),
        operator(groups=1.0),
        operator(stride="2,2", beta=None),
        replace(operator(), phase=Phase.OPTIMIZER_STEP, backward=True),
    )
    found = travelled(replace(made_run(1), operators=operators)).operators
    assert found == operators
    assert [type(o.attributes.get("groups")) for o in found[:3]] == [int, bool, float]


def test_what_repeats_stands_once(made_run):
    few, many = made_run(1), made_run(1)
    many = replace(many, operators=tuple(many.operators) * 50)
    growth = len(json.dumps(stream_to_json(many))) / len(json.dumps(stream_to_json(few)))
    assert growth < 30
    assert len(json.loads(stream_to_json(many))["operands"]) == 1

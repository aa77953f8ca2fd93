"""A stream written as JSON is read back as it was."""

from __future__ import annotations

import gzip
import json

import pytest
from reduced_workloads import REDUCED

from bsprof.predict.target import TraceTarget
from bsprof.predict.trace.run import Tracer
from bsprof.predict.trace.scaling import StreamFamily
from bsprof.predict.trace.serial import stream_from_json, stream_to_json


@pytest.mark.parametrize("name", ["mlp", "awd-lstm", "resnet-channels-last"])
def test_written_and_read_it_is_the_same(name):
    stream = Tracer(REDUCED[name], TraceTarget()).trace(2).stream
    text = stream_to_json(stream)
    again = stream_from_json(text)
    assert again == stream
    assert json.loads(text)["version"] == 1
    types = [type(value) for op in stream.operators for value in op.attributes.values()]
    assert [type(v) for op in again.operators for v in op.attributes.values()] == types
    assert len(gzip.compress(text.encode())) < 40 * len(stream.operators)


def test_a_computed_stream_can_be_written():
    tracer = Tracer(REDUCED["mlp"], TraceTarget())
    family = StreamFamily.of(tracer.trace(2).stream, tracer.trace(5).stream)
    assert stream_from_json(stream_to_json(family.at(9))) == family.at(9)


@pytest.mark.parametrize("text", ["[]", "{}", '{"version": 99}'])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="not a stream of version 1"):
        stream_from_json(text)

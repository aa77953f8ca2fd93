"""For which device kernels are asked for their own temporaries."""

from __future__ import annotations

from made_runs import device, operator, stream, tensor

from bsprof.predict.target import Software
from bsprof.predict.targets import trace_target
from bsprof.predict.terms import libraries


def test_kernels_are_those_of_the_device_that_was_traced_for(monkeypatch):
    asked = []
    monkeypatch.setattr(libraries, "kernel_scratch", lambda _op, target: asked.append(target) or 0)
    card = device(None, kind="rocm", architecture="gfx90a")
    run = stream([operator("aten.sort", 0, inputs=[tensor(8)])])
    libraries.library_insertions(run, card, Software())
    assert asked == [trace_target(card, Software())]

"""What a worker that predicts does with each request: trace, or look at this machine's device.

Worker side: it runs the user's code and loads torch. Every exception ends here and becomes an
`error` answer, as in `bsprof.measure.session`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bsprof.measure.answering import describe
from bsprof.measure.devices.select import open_device
from bsprof.predict.cuda.attention_kernels import ASKED
from bsprof.predict.target import Protocol, TraceTarget
from bsprof.predict.trace.run import Tracer
from bsprof.predict.trace.serial import stream_to_json
from bsprof.records import WorkloadSpec
from bsprof.records.codec import from_json, to_json


class Session:
    """One built workload, kept while the next request is about it.

    Args:
        beat: Called with a phase name as work goes on.
    """

    def __init__(self, beat: Callable[[str], None]) -> None:
        self._beat = beat
        self._asked: dict[str, Any] = {}
        self._tracer: Tracer | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request; failures are answers too."""
        work = {"trace": self._trace, "device": self._device}[request["type"]]
        began = time.perf_counter()
        try:
            answer = work(request)
            return {"type": "reply", **answer, "seconds": time.perf_counter() - began}
        except Exception as error:  # noqa: BLE001 - the outermost frame: all become answers
            return describe(error)

    def _trace(self, request: dict[str, Any]) -> dict[str, Any]:
        """The stream of one micro-batch size."""
        asked = {name: request[name] for name in ("workload", "target")}
        target = from_json(TraceTarget, request["target"])
        if self._tracer is None or asked != self._asked:
            self._beat("build")
            self._tracer = None  # the memory of one model returns before the next is built
            self._tracer = Tracer(
                from_json(WorkloadSpec, asked["workload"]),
                target,
            )
            self._asked = asked
        self._beat("trace")
        ASKED.clear()
        protocol = from_json(Protocol, request["protocol"])
        traced = self._tracer.trace(int(request["micro_batch_size"]), protocol)
        return {
            "stream": stream_to_json(traced.stream),
            "facts": to_json(traced.facts),
            "notes": to_json(traced.notes),
            "key": to_json(traced.key),
            "shared": [_agree(target, from_json(TraceTarget, o)) for o in request["others"]],
        }

    def _device(self, request: dict[str, Any]) -> dict[str, Any]:
        """What a device of this machine says of itself; nothing is allocated on it."""
        self._beat("probe")
        return {"device": to_json(open_device(request["device"]).snapshot())}


def _agree(one: TraceTarget, other: TraceTarget) -> bool:
    """Whether another device would have run the operators that were just traced for one.

    Compute capability decides on the kernels of attention and on nothing else that is traced.
    """
    if (one.semantics, one.software) != (other.semantics, other.software):
        return False
    try:
        return all(question.answer(one) is question.answer(other) for question in ASKED)
    except RuntimeError:  # no kernel of the other runs it: its own trace says so
        return False

"""What a worker that diagnoses does with a request: check, or measure noise. Worker side.

Every exception ends here and becomes an `error` answer, as in `bsprof.measure.session`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bsprof.measure.answering import describe
from bsprof.measure.devices.select import open_device
from bsprof.records import Precision, WorkloadSpec
from bsprof.records.codec import from_json, to_json
from bsprof.workloads.resolve import resolve


class Session:
    """One request each.

    Args:
        beat: Called with a phase name as work goes on.
    """

    def __init__(self, beat: Callable[[str], None]) -> None:
        self._beat = beat

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request; failures are answers too."""
        work = {"check": self._check, "noise": self._noise}[request["type"]]
        try:
            return {"type": "reply", **work(request)}
        except Exception as error:  # noqa: BLE001 - the outermost frame: all become answers
            return describe(error)

    def _check(self, request: dict[str, Any]) -> dict[str, Any]:
        from bsprof.diagnose.equivalence.examine import examine
        from bsprof.diagnose.findings import Cause

        self._beat("build")
        spec = from_json(WorkloadSpec, request["workload"])
        device = open_device(request["device"])
        precision = request["precision"]
        found = examine(
            spec,
            resolve(spec),
            device.torch_device,
            sizes=[int(size) for size in request["sizes"]],
            weigh=request["weigh"],
            precision=Precision(precision) if precision else None,
            allowed=[Cause(name) for name in request["allowed"]],
            beat=lambda: self._beat("step"),
        )
        return {"equivalence": to_json(found)}

    def _noise(self, request: dict[str, Any]) -> dict[str, Any]:
        from bsprof.diagnose.noise.records import Question
        from bsprof.diagnose.noise.run import measure

        self._beat("build")
        spec = from_json(WorkloadSpec, request["workload"])
        device = open_device(request["device"])
        found = measure(
            spec,
            resolve(spec),
            device.torch_device,
            from_json(Question, request["question"]),
            beat=lambda: self._beat("step"),
        )
        return {"noise": to_json(found)}

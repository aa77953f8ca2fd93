"""The roofline of a processor: it computes and dispatches in turn, so everything adds up."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from bsprof.accounting.work import Work, WorkClass
from bsprof.predict.roofline.laws import Parts
from bsprof.predict.roofline.processor_laws import CALL, HALF, SPREAD, counts_of, is_free, law_names
from bsprof.predict.roofline.roofline import Roofline
from bsprof.records import DeviceSpec, Regime
from bsprof.records.calibration import Calibration, Coefficient

OPTIMIZER_CALL = "optimizer_call"
"""Law whose `call` is the price of dispatching an operator in an optimizer's step."""

_USUAL_SPREAD = 0.2
_SHARED_SPREAD = 0.4
"""Heuristic: of how far single shapes lie off their law, what a whole class shares."""
_LEAST_SPREAD = 0.04
_COMPUTE = ("multiplications", "scores")


class ProcessorRoofline(Roofline):
    """Laws of one processor; `Roofline.of` makes it.

    Args:
        device: Of kind `cpu`.
        calibration: With this very device in it: nothing is known of processors in general.
    """

    def __init__(self, device: DeviceSpec, calibration: Calibration) -> None:
        super().__init__(device, calibration)
        self._found: dict[tuple[str, ...], Mapping[str, Coefficient] | None] = {}
        optimizer = self._own.laws.get(OPTIMIZER_CALL)
        self._optimizer_call_s = (
            optimizer.terms[CALL].value if optimizer is not None else self._call_s
        )

    def seconds(self, work: Work) -> float:
        """Seconds of a work, its dispatch included."""
        if is_free(work):
            return 0.0
        parts = self.parts(work)
        return self._scale * float(parts.total_s)

    def parts(self, work: Work) -> Parts:
        """What those seconds are spent on."""
        latency = work.calls * self._dispatch_s(work)
        prices = self._prices(work)
        if prices is None:
            compute = work.flops / self.ceiling(work.compute).value
            traffic = work.bytes / self._bandwidth.value
        else:
            counts = counts_of(work)
            priced = {n: prices[n].value * c for n, c in counts.items() if n in prices}
            latency += priced.pop(CALL, 0.0)
            compute = sum(priced.pop(name, 0.0) for name in _COMPUTE)
            traffic = sum(priced.values())
        total = compute + traffic + latency
        return Parts(compute_s=compute, traffic_s=traffic, latency_s=latency, total_s=total)

    def bound(self, work: Work) -> Regime:
        """Which resource takes most of a work's time."""
        parts = self.parts(work)
        most = max(parts.compute_s, parts.traffic_s, parts.latency_s)
        if parts.latency_s >= most:
            return Regime.LAUNCH
        return Regime.COMPUTE if parts.compute_s >= most else Regime.BANDWIDTH

    def host_seconds(self, works: Iterable[Work]) -> float:  # noqa: ARG002
        """0: the processor is the host, and its dispatching is in `seconds`."""
        return 0.0

    def spread(self, work_class: WorkClass, compute: str | None = None) -> float:  # noqa: ARG002
        """1 sigma of log(measured / predicted) of a class as a whole."""
        name = work_class.value
        found = [
            law.terms[SPREAD].value
            for law_name, law in self._own.laws.items()
            if SPREAD in law.terms
            and law_name.split("/")[0] == name
            and not law_name.endswith(HALF)
        ]
        if not found:
            return _USUAL_SPREAD
        return max(_LEAST_SPREAD, _SHARED_SPREAD * statistics.median(found))

    @property
    def provenance(self) -> tuple[str, ...]:
        """What was measured on this processor."""
        return self._own.sources

    def _prices(self, work: Work) -> Mapping[str, Coefficient] | None:
        """Of the most particular law that was fitted; None where none was."""
        names = law_names(work)
        if names not in self._found:
            laws = self._own.laws
            known = next((laws[name] for name in names if name in laws), None)
            self._found[names] = known.terms if known is not None else None
        return self._found[names]

    def _dispatch_s(self, work: Work) -> float:
        """Of one call: backward passes run no Python; what works in place is an optimizer's."""
        if work.backward:
            return self._backward_call_s
        return self._optimizer_call_s if work.name in _OPTIMIZER_NAMES else self._call_s


_OPTIMIZER_NAMES = frozenset(
    f"aten.{name}"
    for name in (
        "add_",
        "mul_",
        "lerp_",
        "addcmul_",
        "addcdiv_",
        "sqrt",
        "div",
        "neg",
        "maximum",
        "zero_",
    )
)
"""What torch's optimizers run in a loop over parameters; in a forward pass it is rare."""

"""The composition of times, with laws made up for the purpose."""

from dataclasses import dataclass

import pytest

from bsprof.accounting.work import Work, WorkClass
from bsprof.hardware.catalogue import find_device
from bsprof.predict.correction import Correction
from bsprof.predict.cost import Part, StepCosts
from bsprof.predict.room import Conditions
from bsprof.predict.timed_points import catalogue_peaks, timed
from bsprof.predict.timing import TimeModel, shape_words
from bsprof.records import Point, PointStatus, Precision, Quantity, Regime

DEVICE = find_device("rtx-4090")


@dataclass
class Laws:
    """A microsecond for each byte of a work, ten on the host for each call."""

    machine_spread: float = 0.1
    host_spread: float = 0.3
    step_seconds: float = 0.0
    provenance: tuple[str, ...] = ("made up",)

    def seconds(self, work):
        return work.bytes * 1e-6

    def bound(self, work):
        return Regime.COMPUTE if work.flops else Regime.BANDWIDTH

    def host_seconds(self, works):
        return sum(10e-6 * work.calls for work in works)

    def spread(self, _work_class, _compute=None):
        return 0.1


def work(microseconds, **changes):
    values = {"work_class": WorkClass.ELEMENTWISE, "compute": "fp32", "bytes": microseconds}
    return Work(**values | changes)


def costs_of(forward, backward=(), optimizer=(), accumulation=()):
    return StepCosts(
        forward=Part(works=tuple(forward)),
        backward=Part(works=tuple(backward)),
        optimizer=Part(works=tuple(optimizer)),
        accumulation=Part(works=tuple(accumulation)),
    )


def model(costs, *, laws=None, **changes):
    return TimeModel(
        lambda size: costs(size) if callable(costs) else costs,
        lambda _size: pytest.fail("no stream is needed for one rank"),
        Conditions(device=DEVICE),
        laws or Laws(),
        **changes,
    )


def test_a_step_is_the_sum_of_its_works_where_the_device_is_slower():
    costs = costs_of([(work(500), 3)], [(work(1000), 2)], [(work(200), 1)])
    found = model(costs).predict(8)
    assert found.micro_step_s.value == pytest.approx(3.5e-3)
    assert found.forward.device_s == pytest.approx(1.5e-3)
    assert found.optimizer_step_s.value == pytest.approx(0.2e-3)
    assert found.update_s.value == pytest.approx(3.7e-3)
    assert found.micro_step_sync_s is None
    assert found.regime is Regime.BANDWIDTH


def test_the_host_binds_where_it_is_slower_and_hides_behind_a_slow_device():
    launch_bound = model(costs_of([(work(1), 100)], (), [(work(1), 10)])).predict(1)
    assert launch_bound.micro_step_s.value == pytest.approx(1e-3)  # 100 calls of 10 us
    assert launch_bound.optimizer_step_s.value == pytest.approx(0.1e-3)
    assert launch_bound.regime is Regime.LAUNCH
    # The optimizer's calls are dispatched while the device still runs the backward pass.
    hidden = model(costs_of([(work(10_000), 1)], (), [(work(1), 50)])).predict(1)
    assert hidden.optimizer_step_s.value == pytest.approx(50e-6)


def test_intervals_hold_the_machine_and_the_laws_and_cancel_between_sizes():
    found = model(lambda b: costs_of([(work(1000 * b), 1)]))
    one, two = found.predict(10), found.predict(20)
    assert one.micro_step_s.relative_width == pytest.approx(2 * 1.645 * 0.1 * 2**0.5, rel=0.2)
    ratios = [y / x for x, y in zip(one.worlds.micro_step_s, two.worlds.micro_step_s, strict=True)]
    assert max(ratios) == pytest.approx(2.0, rel=2e-5)  # kept to six digits
    assert min(ratios) == pytest.approx(2.0, rel=2e-5)


def test_sizes_that_the_host_binds_are_wide():
    narrow = model(costs_of([(work(10_000), 1)])).predict(1).micro_step_s
    wide = model(costs_of([(work(1), 100)])).predict(1).micro_step_s
    assert wide.relative_width > 1.5 * narrow.relative_width


def test_a_correction_scales_and_adds_and_narrows():
    costs = costs_of([(work(1000), 1)], (), [(work(100), 1)])
    correction = Correction(
        scale=2.0, micro_step_s=1e-3, update_s=5e-3, law_share=0.0, machine_spread=0.0, source="x"
    )
    found = model(costs, correction=correction)
    predicted = found.predict(1)
    assert predicted.micro_step_s.value == pytest.approx(3e-3)
    assert predicted.micro_step_s.relative_width == pytest.approx(0, abs=1e-9)
    assert predicted.optimizer_step_s.value == pytest.approx(5.2e-3)
    assert found.provenance == ("made up", "Corrected by x.")


def test_a_constant_is_as_uncertain_at_all_sizes():
    correction = Correction(
        micro_step_s=1.0, law_share=0.0, machine_spread=0.0, host_spread=0.0, constant_spread=0.1
    )
    found = model(lambda b: costs_of([(work(1000 * b), 1)]), correction=correction)
    small, large = found.predict(1).micro_step_s, found.predict(1000).micro_step_s
    assert small.relative_width == pytest.approx(2 * 1.645 * 0.1, rel=0.1)
    assert large.high - large.low == pytest.approx(small.high - small.low, rel=1e-3)


def test_what_a_corrected_step_is_made_of_is_corrected_as_well():
    costs = costs_of([(work(500), 3), (work(10), 1)], (), [(work(200), 1)])
    correction = Correction(scale=1.2, host_scale=2.0, optimizer_scale=1.5)
    found = model(costs, correction=correction).predict(8)
    assert found.micro_step.device_s == pytest.approx(found.micro_step_s.value)
    assert found.micro_step.host_s == pytest.approx(2 * 4 * 10e-6)
    assert found.optimizer.device_s == pytest.approx(1.2 * 1.5 * 200e-6)
    assert sum(o.seconds for o in found.heaviest) == pytest.approx(found.micro_step.device_s)
    assert sum(found.micro_step.by_regime_s.values()) == pytest.approx(found.micro_step.device_s)


def test_an_update_of_several_micro_steps_adds_up_gradients():
    costs = costs_of([(work(1000), 1)], (), [(work(100), 1)], [(work(30), 1)])
    predicted = model(costs).predict(1)
    assert predicted.update_of(1).value == pytest.approx(1.1e-3)
    assert predicted.update_of(4).value == pytest.approx(4 * 1e-3 + 3 * 30e-6 + 0.1e-3)


def test_inference_has_no_optimizer_step():
    predicted = model(costs_of([(work(1000), 1)])).predict(1)
    assert predicted.optimizer_step_s is None
    assert predicted.worlds.optimizer_step_s == ()


def test_the_heaviest_operators_come_first_with_their_shape():
    mm = work(900, work_class=WorkClass.MATMUL, flops=10, m=4, n=5, k=6, compute="bf16", name="mm")
    predicted = model(costs_of([(work(10), 3), (mm, 2)])).predict(1)
    first = predicted.heaviest[0]
    assert (first.name, first.count, first.flops, first.bytes) == ("mm", 2, 20, 1800)
    assert first.seconds == pytest.approx(1.8e-3)
    assert shape_words(mm) == "(4, 6) by (6, 5), bf16"
    assert shape_words(work(1, rows=3, columns=7)) == "3 x 7, fp32"


def test_a_point_gets_its_rates_and_utilisation():
    flops = 10**9
    mm = work(1000, work_class=WorkClass.MATMUL, flops=flops, model_flops=flops // 2)
    predicted = model(costs_of([(mm, 1)], (), [(work(1000), 1)])).predict(8)
    point = Point(micro_batch_size=8, status=PointStatus.OK, device_used_bytes=Quantity.exact(1.0))
    found = timed(point, predicted, catalogue_peaks(DEVICE, 2e-6), Precision.FP32)
    assert found.samples_per_s.value == pytest.approx(8 / 2e-3)
    ceiling = DEVICE.flops_per_s["fp32"]
    assert found.mfu.value == pytest.approx(flops / 2 / 1e-3 / ceiling)
    assert found.hfu.value == pytest.approx(flops / 1e-3 / ceiling)
    assert found.regime is Regime.COMPUTE
    assert found.device_used_bytes == point.device_used_bytes
    assert found.prediction.seconds_by_class == {"matmul": pytest.approx(1e-3)}

"""One finished size in one line."""

from bsprof.measure.telling import point_line
from bsprof.records import Failure, Point, PointPrediction, PointStatus, Quantity

GIB = 2**30


def predicted(**more):
    used = Quantity(value=4 * GIB, low=3.5 * GIB, high=5 * GIB)
    fields = {"device_used_bytes": used, "alloc_retries": 0, "prediction": PointPrediction()}
    return Point(micro_batch_size=8, status=PointStatus.OK, **(fields | more))


def test_a_measured_size():
    point = Point(
        micro_batch_size=8,
        status=PointStatus.OK,
        micro_step_s=Quantity.exact(0.02),
        samples_per_s=Quantity.exact(400),
        device_used_bytes=Quantity.exact(GIB),
    )
    assert point_line(point) == "micro-batch 8: 20.0 ms a micro-step, 400 samples/s, 1.00 GiB used"


def test_a_predicted_size_tells_time_and_memory_with_their_intervals():
    step = Quantity(value=0.02, low=0.015, high=0.03)
    assert point_line(predicted(micro_step_s=step)) == (
        "micro-batch 8: fits, 4.00 GiB used (3.50 GiB to 5.00 GiB), 20.0 ms a micro-step "
        "(15.0 ms to 30.0 ms)"
    )
    assert point_line(predicted()) == "micro-batch 8: fits, 4.00 GiB used (3.50 GiB to 5.00 GiB)"
    flushed = predicted(alloc_retries=1, device_used_bytes=None)
    assert point_line(flushed) == "micro-batch 8: fits only after a cache flush"


def test_a_size_that_did_not_run_says_why():
    failure = Failure(reason="too much", phase="step")
    point = Point(micro_batch_size=8, status=PointStatus.OOM, failure=failure)
    assert point_line(point) == "micro-batch 8: oom (too much)"

from __future__ import annotations

import pytest

from bsprof.errors import MeasurementError, ProfileFormatError
from bsprof.records import (
    Category,
    Failure,
    Origin,
    Phase,
    Place,
    Point,
    PointPrediction,
    PointStatus,
    Prediction,
    Profile,
    Quantity,
    Stage,
    Term,
    Timeline,
)
from bsprof.records.codec import from_json, to_json


def test_a_file_from_before_predictions_is_still_read(make_profile):
    document = to_json(make_profile())
    del document["prediction"]
    for point in document["points"]:
        del point["prediction"]
    assert from_json(Profile, document) == make_profile()


def test_a_prediction_survives_the_file(make_profile, make_point):
    context = Term(
        name="CUDA context", bytes=Quantity.exact(5e8), place=Place.OUTSIDE, source="a table"
    )
    timeline = Timeline(
        positions=(0, 4),
        bytes_by_category={Category.WEIGHTS: (10, 10), Category.LIBRARIES: (0, 3)},
        stages=(Stage(sample=0, phase=Phase.FORWARD_BACKWARD, micro_step=0),),
        peak=1,
    )
    point = make_point(
        8, 0.1, 1000, prediction=PointPrediction(top_modules={"fc": 7}, timeline=timeline)
    )
    profile = make_profile(
        points=(point,), prediction=Prediction(device="rtx-4090", terms=(context,))
    )
    assert from_json(Profile, to_json(profile)) == profile


def test_a_prediction_in_which_nothing_fits_does_not_speak_of_measuring(make_profile):
    failed = Point(
        micro_batch_size=1,
        status=PointStatus.OOM,
        failure=Failure(reason="would need 171 GiB", phase="build"),
    )
    profile = make_profile(origin=Origin.PREDICTED, points=(failed,))
    with pytest.raises(MeasurementError) as found:
        profile.raise_for_status()
    assert found.value.doing.endswith("is predicted to fit on Test Processor 3000")
    assert found.value.found == "the smallest, 1: would need 171 GiB"


@pytest.mark.parametrize(
    "fields",
    [
        {"bytes_by_category": {Category.WEIGHTS: (1,)}},
        {"bytes_by_category": {}, "reserved_bytes": (1, 2, 3)},
        {"bytes_by_category": {}, "peak": 2},
        {"bytes_by_category": {}, "stages": (Stage(sample=5, phase=None),)},
    ],
)
def test_a_timeline_with_parts_that_do_not_fit_together_is_refused(fields):
    with pytest.raises(ValueError, match="timeline of 2 samples"):
        Timeline(positions=(0, 1), **fields)


def test_a_broken_timeline_in_a_file_is_named():
    data = {"positions": [0, 1], "bytes_by_category": {"weights": [1]}}
    with pytest.raises(ProfileFormatError, match="Timeline is not valid"):
        from_json(Timeline, data)

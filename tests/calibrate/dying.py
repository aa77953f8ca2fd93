"""A session that dies, hangs or fails on some benchmarks, and answers others without timing."""

import os

from bsprof.calibrate import session
from bsprof.calibrate.measured import Sample
from bsprof.records.codec import to_json

MADE = Sample(device_s=(1e-3, 1.1e-3, 0.9e-3), host_s=(1e-3, 1e-3, 1e-3), pace_s=(2e-3,) * 3)


class Session(session.Session):
    def _time(self, request):
        program = request["benchmark"]["program"]
        if program == "pointwise.add":
            os._exit(7)
        if program == "pointwise.mul":
            raise RuntimeError("a kernel went wrong")
        if program == "pointwise.sub":
            return {"refused": "not implemented for 'Half'"}
        return {"sample": to_json(MADE)}

"""Traces a workload's own step on tensors without data: which storages are made and dropped, when.

`Tracer` (in `run`) needs torch and belongs in a worker; `scaling` and `serial` are plain Python.
"""

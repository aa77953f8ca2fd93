"""Makes fake CPU tensors behave like CUDA ones, for the worker that traces.

`semantics.cuda_semantics(target)` is the way in. `attention`, `optimizers`, `scratch` are pure
rules that load no torch; the other modules belong to a worker process: what they register with
torch's dispatcher is process-wide while it is active.
"""

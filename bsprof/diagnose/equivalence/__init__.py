"""The gradient of the whole batch against that of its pieces; runs in a worker."""

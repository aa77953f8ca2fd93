"""The gradient noise scale of a workload: records, interval (pure), and the worker's runs."""

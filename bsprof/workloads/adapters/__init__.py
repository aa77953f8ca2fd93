"""Workloads from what people already have: trainers' objects, data sets, loaders."""

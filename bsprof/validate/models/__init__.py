"""Workloads that the measured programs ran and that no package installs, written for validation.

Each follows its source's public code as far as memory goes: which tensors are made, in which type,
and what autograd keeps of them. They load torch: workers alone import them.
"""

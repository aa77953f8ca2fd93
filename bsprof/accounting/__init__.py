"""Operators: what each computes and moves, counted while a step runs. Import the modules."""

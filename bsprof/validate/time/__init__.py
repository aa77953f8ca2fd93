"""Predictions of time against published measurements."""

"""Readers of public kernel measurements: each turns one file's lines into rows of a fit."""

"""Predicts what a training step needs on a device that is not here: nothing is run on it."""

"""Runs a plan in the user's own PyTorch loop: pieces, weights, synchronisation, one step."""

"""The architectures of the catalogue in plain torch, one module each, random weights."""

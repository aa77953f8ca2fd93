"""One module for each source of measurements: its rows as settings, as its public code has them."""

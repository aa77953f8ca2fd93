"""One module for each source of times: its rows as settings, as its public code has them."""

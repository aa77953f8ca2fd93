"""Whether accumulation is the whole batch's gradient, and how noisy that gradient is."""

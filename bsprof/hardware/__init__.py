"""What is known of devices: their measured peaks, kept in the store. Touches files only."""

"""What is known of devices: the catalogue, and measured peaks in the store. Touches files only."""

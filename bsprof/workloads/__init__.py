"""What can be run: built-in models, the user's own factories, and the training step over them."""

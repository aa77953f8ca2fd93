"""One named amount of memory that is not a tensor of the model; it travels with the profile."""

from bsprof.records import Place, Term

__all__ = ["Place", "Term"]

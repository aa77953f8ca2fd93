"""The roofline with saturation: laws of time by class of work, and their coefficients."""

from bsprof.predict.roofline.roofline import Roofline

__all__ = ["Roofline"]

"""Laws of time: device seconds of a work, launches left out, from its shape and a few terms.

Every formula uses arithmetic alone, so that it takes numbers (one work) or arrays (a fit).
"""

from bsprof.predict.roofline.laws.attention import AttentionLaw
from bsprof.predict.roofline.laws.contraction import ContractionLaw, ConvolutionLaw
from bsprof.predict.roofline.laws.law import Law, Parts, Term, cached_bandwidth
from bsprof.predict.roofline.laws.traffic import TrafficLaw

__all__ = [
    "AttentionLaw",
    "ContractionLaw",
    "ConvolutionLaw",
    "Law",
    "Parts",
    "Term",
    "TrafficLaw",
    "cached_bandwidth",
]

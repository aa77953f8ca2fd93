"""Memory that a trace does not show: context, library workspaces, communication buffers."""

from bsprof.predict.terms.libraries import library_insertions, terms_of
from bsprof.predict.terms.outside import outside_bytes, outside_terms
from bsprof.predict.terms.recurrent import reserve_storages, with_reserve
from bsprof.predict.terms.sharding import Strategy, parallelise
from bsprof.predict.terms.variant import NOMINAL, SMALLEST, VARIANTS, End, Variant

__all__ = [
    "NOMINAL",
    "SMALLEST",
    "VARIANTS",
    "End",
    "Strategy",
    "Variant",
    "library_insertions",
    "outside_bytes",
    "outside_terms",
    "parallelise",
    "reserve_storages",
    "terms_of",
    "with_reserve",
]

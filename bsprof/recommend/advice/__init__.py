"""Advice on training with a plan: each note says its rule, its conditions and where it is from."""

from bsprof.recommend.advice.advise import Situation, advise

__all__ = ["Situation", "advise"]

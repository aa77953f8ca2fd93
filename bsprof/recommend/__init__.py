"""From a profile to a plan: which micro-batch, how many accumulation steps, and why."""

from bsprof.recommend.document import recommendation_document
from bsprof.recommend.plan import recommend_plan

__all__ = ["recommend_plan", "recommendation_document"]

"""What an update of a traced run asks of a device: operators as `Work`, by part. Loads no torch."""

from bsprof.predict.cost.steady import Part, StepCosts, steady_costs
from bsprof.predict.cost.works import works_of

__all__ = ["Part", "StepCosts", "steady_costs", "works_of"]

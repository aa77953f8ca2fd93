"""A plan as the settings of a trainer: its own keys, with what it does with them said beside."""

from bsprof.frameworks.render import framework_names, settings_for
from bsprof.frameworks.settings import Settings
from bsprof.frameworks.verified import verification_table

__all__ = ["Settings", "framework_names", "settings_for", "verification_table"]

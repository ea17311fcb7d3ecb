"""Settings: `remit.toml` (or `[tool.remit]` in pyproject.toml) < environment `REMIT_*` < arguments, and where each value came from.

    values    `Settings`: what holds, as frozen values
    model     the shape a file, the environment and arguments must have
    layers    reading them, each value with its source
    faults    what is wrong with them, said so that it can be put right
    load      `load_settings`, `describe` and `environment_of`

The one place where settings are read. Whatever uses them is given values; nothing else looks at files or the environment for them.
"""

from remit.runtime.settings.load import describe, environment_of, load_settings
from remit.runtime.settings.values import Settings

__all__ = ["Settings", "describe", "environment_of", "load_settings"]

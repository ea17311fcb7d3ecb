"""Checks of compositions, groups, the result cache and adaptive limits for any engine. Importing it adds them to the engine checks.

The embedded engine, the Temporal engine and `support.memory_engine` pass them in addition to the checks of `support.engine_suite`.
"""

from support.engine_features import engine_cache_suite, engine_composition_suite, engine_group_suite, engine_limits_suite

__all__ = ["engine_cache_suite", "engine_composition_suite", "engine_group_suite", "engine_limits_suite"]

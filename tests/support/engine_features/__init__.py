"""Checks of compositions, groups, the result cache and adaptive limits over any engine. Importing it adds them to the engine checks.

The embedded engine, the one on Temporal and the one in `support.memory_engine` keep them beside the promises of `remit.testing`."""

from support.engine_features import engine_cache_suite, engine_composition_suite, engine_group_suite, engine_limits_suite

__all__ = ["engine_cache_suite", "engine_composition_suite", "engine_group_suite", "engine_limits_suite"]

"""Checks of compositions, groups, the result cache and adaptive limits for any engine. `support.engine_suite` includes them."""

from support.engine_features import engine_cache_suite, engine_composition_suite, engine_group_suite, engine_limits_suite

__all__ = ["engine_cache_suite", "engine_composition_suite", "engine_group_suite", "engine_limits_suite"]

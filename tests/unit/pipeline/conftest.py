"""Hypothesis on a machine that does other things as well."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A deadline in milliseconds measures the machine's load, not the code.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

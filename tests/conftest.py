"""Settings that every test shares."""

from hypothesis import HealthCheck, settings

# A slow machine is no failure: no deadline, and no complaint about how long the examples take to make.
settings.register_profile("pipeline_bench", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pipeline_bench")

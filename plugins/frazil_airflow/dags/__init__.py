"""Pipelines, captures and the monitor become DAGs. Begin with `factory`."""

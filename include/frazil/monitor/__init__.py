"""The condition of pipelines and captures. Page, terminal, metrics and alerts all show the same reading and the same state.

Begin with `condition`.
"""

"""Alerts: the rules that raise them, their texts, and the log of sent notices. The plugin sends them, by Airflow's notifiers.

Begin with `rules`.
"""

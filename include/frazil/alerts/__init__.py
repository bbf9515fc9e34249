"""Alerts: the rules that raise them, their texts, and the log of notices already sent. Airflow's notifiers send them."""

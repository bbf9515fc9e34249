"""Alerts in Airflow: channels, callbacks, and the log of notices."""

"""Alerts in Airflow: callbacks of failed and late runs, the log of notices, and sending through channels."""

"""Notices to people, and the channels they go through: each channel is one class in `channels.py`. Airflow's notifiers send."""

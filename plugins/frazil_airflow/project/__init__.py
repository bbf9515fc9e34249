"""The project in Airflow: its secrets, valid pipelines, requests of runs, and the trigger that watches the lag."""

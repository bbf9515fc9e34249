"""The project in Airflow: settings, secrets, valid pipelines, requests of runs, and errors as task outcomes."""

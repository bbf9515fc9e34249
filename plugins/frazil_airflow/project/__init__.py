"""The project as Airflow sees it: settings, secrets, usable pipelines, what a run asks for, and errors as task outcomes."""

"""Output of tasks in Airflow: assets, lineage, links, metrics, notes and pages."""

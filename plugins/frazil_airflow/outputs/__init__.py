"""What tasks leave in Airflow: assets, lineage, links, metrics, notes and pages."""

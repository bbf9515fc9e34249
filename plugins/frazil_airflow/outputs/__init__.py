"""What tasks show in Airflow: assets, lineage, links, metrics, notes of runs, and stored reports."""

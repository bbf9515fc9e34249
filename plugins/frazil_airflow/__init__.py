"""Frazil under Airflow: pipelines become DAGs. The only package that imports airflow; it never imports pyspark."""

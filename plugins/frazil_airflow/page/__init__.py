"""The page under Airflow's navigation: the state of all pipelines, and one pipeline with its batches and dead letters."""

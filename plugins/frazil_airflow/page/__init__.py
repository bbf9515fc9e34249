"""The page under Airflow's navigation: how all pipelines are doing, and one pipeline with its batches and dead letters."""

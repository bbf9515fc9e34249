"""What every process of Frazil needs of its machine: home, files, processes, Java, jars, and Airflow as a client sees it."""

"""Access to the machine for every process of Frazil: home, files, processes, Java, jars, and a client of Airflow's API."""

"""What people are told, and when: the rules, the words and what was said already. Sending is Airflow's notifiers'."""

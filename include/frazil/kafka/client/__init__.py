"""How a broker is reached: clients with time limits, logins, errors by what a caller may do, and records as they travel."""

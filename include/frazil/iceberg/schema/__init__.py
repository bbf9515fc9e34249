"""Columns: those that a pipeline file declares, how tables evolve, and those of tables that the Connect sink wrote."""

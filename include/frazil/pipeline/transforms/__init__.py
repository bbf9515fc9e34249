"""The models of the entries of `transforms:`."""

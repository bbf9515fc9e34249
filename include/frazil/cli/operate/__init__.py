"""Commands that run something or change something: runs, resets, repairs, the stack."""

"""The simulator: the store under faults, in virtual time, from a seed."""

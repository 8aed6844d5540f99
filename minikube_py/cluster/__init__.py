"""A whole control plane as a value: started in one line, thrown away, repeatable."""

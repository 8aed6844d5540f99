"""A whole control plane as a value: started in one line, disposable, repeatable."""

"""One module per scheduler plugin."""

"""What a controller framework asks of its store: recorded, counted, drawn."""

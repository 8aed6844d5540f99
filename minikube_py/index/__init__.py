"""Range-query indexes, versioned by revision."""

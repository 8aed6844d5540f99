"""The kit that judges an index of one's own: laws with minimal counter-examples, and a bench beside the family."""

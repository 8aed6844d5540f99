"""HTTP extenders: external servers that filter, score, choose victims and bind for the scheduler."""

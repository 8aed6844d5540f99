"""HTTP extenders: servers of others that filter, score, choose victims and bind for the scheduler."""

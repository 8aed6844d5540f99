"""The replicated state machine: revisions, key index, txn, watch, lease, compaction."""

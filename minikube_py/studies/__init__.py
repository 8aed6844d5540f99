"""The pre-registered study of filters and indexes for matching pods to nodes; see docs/studies/bloom.md."""

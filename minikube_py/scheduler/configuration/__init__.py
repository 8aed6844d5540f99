"""A KubeSchedulerConfiguration: read, defaulted and validated as upstream does."""

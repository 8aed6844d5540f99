"""A KubeSchedulerConfiguration: parsed, defaulted and validated as upstream does."""

"""Custom resources: turns a CustomResourceDefinition into a `Kind`, as in `api.kinds`, at run time."""

"""Custom resources: from a CustomResourceDefinition to the same `Kind` that `api.kinds` holds, at run time."""

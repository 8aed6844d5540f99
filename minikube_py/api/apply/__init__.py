"""Server-side apply: field ownership, and the result of an apply. Pure.

`path_set` holds sets of fields, `types` list and map types from upstream's schemas, `typed` walks values by these
types, `updater` merges and determines owners, `managed_fields` is Kubernetes' part: `metadata.managedFields`.

Source: sigs.k8s.io/structured-merge-diff v6; apimachinery `pkg/util/managedfields`.
"""

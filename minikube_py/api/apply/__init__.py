"""Server-side apply: who owns which field of an object, and what an apply makes of it. Pure.

`path_set` holds sets of fields, `types` what upstream's schemas say of lists and maps, `typed` walks values by these
types, `updater` merges and settles owners, `managed_fields` is Kubernetes' part: `metadata.managedFields`.

Source: sigs.k8s.io/structured-merge-diff v6; apimachinery `pkg/util/managedfields`.
"""

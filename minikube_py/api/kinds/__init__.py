"""All served kinds, one file per API group: a kind is a value (`api.kind.Kind`)."""

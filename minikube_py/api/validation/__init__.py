"""Whether an object may be stored: `validate_create` and `validate_update`, uniform over the kinds.

Fields, wordings and their order are those of upstream (`pkg/apis/*/validation`, `registry/rest`). Objects are decoded,
defaulted and prepared, so types are right and missing means empty.
"""

"""Whether an object may be stored: `validate_create` and `validate_update`, uniform over the kinds.

Fields, wordings and their order are those of upstream (`pkg/apis/*/validation`, `registry/rest`). Objects have gone
through decode, defaults and strategy, so that types are right and what is missing means empty.
"""

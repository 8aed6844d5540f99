"""The study `prediction`: see docs/studies/prediction.md."""

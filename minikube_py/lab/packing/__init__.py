"""Packing quality: published policies replayed, and what they leave of the GPUs."""

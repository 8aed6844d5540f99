"""Packing quality: replays published policies and measures the remaining GPUs."""

"""Simulated containers: what they print, the commands and ports that answer in them, and how clients reach them."""

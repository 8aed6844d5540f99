"""Structures that were the cheapest nowhere in the first study. `plugins.toml` has their names."""

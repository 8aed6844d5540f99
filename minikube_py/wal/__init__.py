"""Formats on disk: records, segments, snapshots."""

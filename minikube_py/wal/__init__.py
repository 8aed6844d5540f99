"""Formats of what is on disk: records, log segments, snapshots, and recovery from them. Bytes in, bytes out; no IO."""

"""On-disk formats: records, log segments, snapshots, and recovery from them. Bytes in, bytes out; no IO."""

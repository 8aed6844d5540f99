"""A server's side of HTTP/2, without IO."""

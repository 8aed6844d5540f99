"""The server side of HTTP/2, without IO."""

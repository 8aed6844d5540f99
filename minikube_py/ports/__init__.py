"""How this process accepts connections: one mechanism for every port, and one budget of file descriptors."""

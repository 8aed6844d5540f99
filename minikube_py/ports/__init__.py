"""How this process accepts connections: one mechanism for every port, and one count of its file descriptors."""

"""A store member as a process, and the Storage protocol with its clients."""

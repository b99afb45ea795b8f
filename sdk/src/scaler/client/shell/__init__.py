"""What surrounds a client's core: its I/O thread, the connection, files, and waiting for outcomes."""

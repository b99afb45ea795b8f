"""The shell around a client's core: the I/O thread, the connection, files, and waiting for outcomes."""

"""The I/O of an agent: event loop, connection, sockets of processors, files, signals, clocks."""

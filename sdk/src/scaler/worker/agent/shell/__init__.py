"""What an agent does: event loop, connection, sockets of processors, files, signals, clocks."""

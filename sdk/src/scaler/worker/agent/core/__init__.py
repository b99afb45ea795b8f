"""The decisions of an agent. Sans-IO: no socket, file, clock, randomness, thread or lock, here or in imported
modules."""

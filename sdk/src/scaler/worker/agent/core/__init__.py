"""What an agent decides. Sans-IO: no socket, file, clock, randomness, thread or lock, here or in what is imported."""

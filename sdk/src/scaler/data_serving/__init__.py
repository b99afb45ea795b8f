"""Serving objects to workers, from a worker or a client: tickets, without I/O, and connections."""

"""Everything around the core: sockets, event loop, files, signals, command line.

Rules: `connections` and `publishing` are the only ones that know ZeroMQ, `server` is the only one that knows the event
loop; none of them decides anything about tasks.
"""

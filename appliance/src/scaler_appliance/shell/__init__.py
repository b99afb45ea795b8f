"""Everything around the core: sockets, event loop, files, signals, command line.

Rules: `transport` is the only module that knows ZeroMQ, `server` the only one that knows the event loop; neither
decides anything about tasks.
"""

"""One host's resources: addresses and sockets, shared-memory segments, spilled files, discovery of a local scheduler.

Rules: this is the part of the package that performs I/O. Nothing in `wire` or `session` imports it.
"""

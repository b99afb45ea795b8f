"""How Python objects become bytes and come back: pickling, codecs, captured state, exceptions, named functions.

Rules: nothing here depends on clients, workers or sockets; both sides of a task use it.
"""

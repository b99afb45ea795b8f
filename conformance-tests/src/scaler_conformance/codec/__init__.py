"""The messages of the protocol, encoded by pycapnp with its schema; messages of other versions, and invalid frames.

Rule: nothing here imports the programs under test, or other parts of this package except `judging.register`, which
knows where the specification is.
"""

"""The messages of the protocol by pycapnp and its schema; messages of other versions, and frames that are none.

Rule: no code of the programs that are tested, and nothing of the other parts of this package but `judging.register`,
which knows where the specification is.
"""

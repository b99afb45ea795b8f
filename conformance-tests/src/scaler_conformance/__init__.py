"""Tests of any implementation of the protocol, in any language, over real sockets.

Rule: nothing here imports the other Scaler packages. An implementation tested with its own codec would agree with its
own mistakes.
"""

__version__ = "0.1.0"

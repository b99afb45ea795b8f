"""The peers that the suite plays: their connections and sessions, and what they expect of the other side.

Rules:
- A conversation is the messages of one connection; sessions and played peers know the messages of one role.
- All waits have the same deadline, that of the run; a wait that times out raises Violation.
- Within this package, it imports `codec`, `judging.verdicts` and `configuration.settings`.
"""

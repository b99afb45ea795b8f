"""Peers that the suite plays: their connections, their sessions, and what they expect of the other side.

Rules:
- A conversation is one connection's messages; sessions and played peers know one role's messages.
- Everything that waits has the run's one deadline; a wait that ends in vain raises Violation.
- Of this package it imports `codec`, `judging.verdicts` and `configuration.settings`.
"""

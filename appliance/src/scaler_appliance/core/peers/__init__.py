"""Clients and workers with a session, and how much each may have in flight.

Rule: a session holds what ends with it.
"""

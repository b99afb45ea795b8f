"""Graphs as data: reading a user's dictionary into columns, ordering its tasks, finding cycles.

Rules: pure computation. Nothing here submits tasks.
"""

"""The common part of clients and workers: starting, keeping and ending a session, ids, fetching objects.

Rules: sans-IO. Time, messages and randomness are arguments; what has to be done is returned as effects.
"""

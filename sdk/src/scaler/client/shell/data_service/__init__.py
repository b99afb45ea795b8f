"""Serving workers from a client: the loop of its thread, and what is connected there."""

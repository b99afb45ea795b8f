"""Engines of other projects, each in a virtual environment of its own; nothing here is imported by run.py."""

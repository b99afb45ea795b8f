"""Notebooks: a client in the cells of a real kernel of IPython."""

from __future__ import annotations

from suite import HERE, Suite

SUITES = [Suite("notebooks", "ipykernel", [str(HERE / "notebook_kernel.py")], fewest=5)]

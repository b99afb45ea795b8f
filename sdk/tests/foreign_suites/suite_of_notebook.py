"""Notebooks: a client in the cells of a real kernel of IPython."""

from __future__ import annotations

from suite import HERE, Suite

# The tree's conftest.py needs packages that only its own tests have.
TESTS = str(HERE / "notebook_kernel.py")
SUITES = [Suite("notebooks", "ipykernel", [TESTS], fewest=7, arguments=["--noconftest"])]

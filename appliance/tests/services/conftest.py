"""Schedulers as services: on every interpreter, like those of the tests of the shell."""

from __future__ import annotations

from shell.conftest import start

__all__ = ["start"]

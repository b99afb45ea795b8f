"""Schedulers as services: on every interpreter, like those of the tests of the shell."""

from __future__ import annotations

from own_folders import folders
from shell.conftest import start

__all__ = ["folders", "start"]

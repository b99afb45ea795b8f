"""What checks of schedulers need."""

from __future__ import annotations

from own_folders import folders

__all__ = ["folders"]

"""Folders in memory, where objects are in production, too: each of some thousand runs makes folders and files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Iterator

import pytest

MEMORY = "/dev/shm"


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory if the system has such a folder."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="scaler-faults-", dir=MEMORY) as folder:
        yield Path(folder)

"""What the tests of all recipes share."""

from __future__ import annotations

from pathlib import Path

import pytest
from empty_root import EmptyRoot, why_not


@pytest.fixture
def empty_root(tmp_path: Path) -> EmptyRoot:
    """A root folder with only the C library and /bin/sh in it."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    return EmptyRoot(tmp_path / "root")

from __future__ import annotations

import pytest
from scheduler_harness import Harness


@pytest.fixture
def harness() -> Harness:
    return Harness()

from __future__ import annotations

import pytest
from scheduler_harness import Harness


@pytest.fixture
def harness(request: pytest.FixtureRequest) -> Harness:
    """With the settings that the module of the test names, if it has any."""
    return Harness(**getattr(request.module, "SETTINGS", {}))

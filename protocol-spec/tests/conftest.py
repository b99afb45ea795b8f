"""What the tests of the specification share: its tools, and the helpers of the binding's tests, by name."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1]
for folder in ("tools", "python/tests"):
    sys.path.insert(0, str(FOLDER / folder))

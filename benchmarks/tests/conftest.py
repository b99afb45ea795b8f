"""The benchmarks are scripts beside each other, not a package: their folder goes onto the import path."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

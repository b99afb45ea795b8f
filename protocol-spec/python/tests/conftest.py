"""What the tests of the protocol package share: their helper modules can be imported by name.

Rules: no fixtures that hide what a test does, nothing global to other test folders.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

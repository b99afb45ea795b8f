"""`python -m scaler.worker`: the same as scaler_cluster."""

from __future__ import annotations

import sys

from scaler.worker.program import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m scaler.worker`: the same as scaler_cluster, but for the supervisor beside it."""

from __future__ import annotations

import sys

from scaler.worker.program import main

if __name__ == "__main__":
    sys.exit(main())

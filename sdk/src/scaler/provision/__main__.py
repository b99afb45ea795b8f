"""`python -m scaler.provision`: `scaler_provision`."""

from __future__ import annotations

import sys

from scaler.programs.provision_host import main

if __name__ == "__main__":
    sys.exit(main())

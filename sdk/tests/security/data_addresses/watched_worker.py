"""A worker that writes a line to a file for each header that it decodes at its data address.

python watched_worker.py FILE ARGUMENTS OF scaler_worker
"""

from __future__ import annotations

import sys

from security.watched_decoding import watched

from scaler.data_serving import data_connections
from scaler.worker import worker_program
from scaler_protocol import decode


def main() -> int:
    path = sys.argv.pop(1)
    vars(data_connections)["decode"] = watched("header", decode, path)
    return worker_program.main()


if __name__ == "__main__":
    sys.exit(main())

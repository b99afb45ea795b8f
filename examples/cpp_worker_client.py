"""Use a C++ worker beside a Python worker: a task goes to a worker that serves its function and has its capabilities.

`make cpp-worker` builds the C++ worker. It contains no Python: its functions have names, and their arguments travel as
JSON or as bytes.

Prints:
    ........:::::::::::::::::::::::::::::::
    ......:::::::::::::-----===---:::::::::
    .....:::::::::::-------=%%*-----:::::::
    ....:::::::::------=%+%%%%%%+===-::::::
    ...:::::---=-----==%%%%%%%%%%%%=--:::::
    ...:-------=+%%%%=%%%%%%%%%%%%%+---::::
    ...%%%%%%%%%%%%%%%%%%%%%%%%%%%=----::::
    ...:-------=+%%%%=%%%%%%%%%%%%%+---::::
    ...:::::---=-----==%%%%%%%%%%%%=--:::::
    ....:::::::::------=%+%%%%%%+===-::::::
    .....:::::::::::-------=%%*-----:::::::
    ......:::::::::::::-----===---:::::::::
    ........:::::::::::::::::::::::::::::::
    SHA-256 of a megabyte: d29751f2649b32ff...
    with the capability native: C++17
    with the capability python: CPython
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import List

from scaler import Client, NamedFunction
from scaler.cluster.scheduler import Scheduler
from scaler_protocol.keys.key_directory import OWNER_KEY, default_key_directory

CPP_WORKER = Path(__file__).resolve().parents[1] / "build/cpp-worker/cpp_worker"

KEY_FILE = os.path.join(default_key_directory(), OWNER_KEY)  # of the user who starts the scheduler

MANDELBROT_ROW = NamedFunction("example.org/mandelbrot-row")
SHA256 = NamedFunction("example.org/sha256", codec="raw")
LANGUAGE = NamedFunction("example.org/language")


def draw(steps: List[int]) -> str:
    """A row of the picture: the longer a point stays in the circle, the darker it is."""
    return "".join(".:-=+*%"[min(count.bit_length() - 1, 6)] for count in steps)


def main() -> None:
    if not CPP_WORKER.exists():
        sys.exit(f"no C++ worker at {CPP_WORKER}: build it with `make cpp-worker`")
    with contextlib.ExitStack() as stack:
        scheduler = Scheduler(logging_level="WARNING")
        scheduler.start()
        stack.callback(scheduler.shutdown)
        address = scheduler.get_address()
        language = "example.org/language=platform:python_implementation"
        python_worker = [sys.executable, "-m", "scaler.worker", address, "--functions", language]
        for command in [
            [*python_worker, "--capabilities", "python", "--logging-level", "WARNING"],
            [str(CPP_WORKER), address, "--key-file", KEY_FILE, "--capabilities", "native"],
        ]:
            worker = stack.enter_context(subprocess.Popen(command, stderr=subprocess.DEVNULL))
            stack.callback(worker.terminate)
        use(address)


def use(address: str) -> None:
    with Client(address=address) as client:
        # Only the C++ worker serves this function, and only Python workers can load `draw`.
        rows = client.map(MANDELBROT_ROW, *zip(*((y / 5, -2.2, 1.0, 39, 500) for y in range(-6, 7))))
        lines = [client.submit(draw, row) for row in rows]
        print("\n".join(line.result() for line in lines))

        digest = client.submit(SHA256, bytes(1_000_000)).result()
        print(f"SHA-256 of a megabyte: {digest.hex()[:16]}...")

        # Both serve this function: the capability decides.
        for capability in ("native", "python"):
            future = client.submit_verbose(LANGUAGE, (), {}, capabilities={capability: 0})
            print(f"with the capability {capability}: {future.result()}")


if __name__ == "__main__":
    main()

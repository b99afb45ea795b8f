"""Task options: retries, time limits, capabilities and priorities.

Prints:
    a thumbnail of cat.png
    TaskTimeoutError
    the GPU has drawn frame 1
    True
"""

import time

from scaler import Client, SchedulerClusterCombo
from scaler.exceptions import TaskTimeoutError


def thumbnail(path: str, timeout: int = 0) -> str:
    return f"a thumbnail of {path}"


def draw(frame: int) -> str:
    return f"the GPU has drawn frame {frame}"


def main() -> None:
    cluster = SchedulerClusterCombo(n_workers=2, per_worker_capabilities={"gpu": 1})

    with Client(address=cluster.get_address()) as client:
        # A view of the client: its tasks are retried if their process dies, and may take a minute each.
        # The keyword `timeout` of `submit` belongs to the function.
        careful = client.options(retries=2, timeout=60)
        print(careful.submit(thumbnail, "cat.png", timeout=5).result())

        try:
            client.options(timeout=0.2).submit(time.sleep, 3600).result()
        except TaskTimeoutError as error:
            print(type(error).__name__)

        # Only workers that offer a GPU run it, ahead of other waiting tasks.
        on_gpu = client.options(capabilities={"gpu": 1}, priority=10)
        print(on_gpu.submit(draw, 1).result())

        future = client.submit(sum, range(100_000), profiling=True)
        future.result()
        print(future.profiling_info().duration_us > 0)

    cluster.shutdown()


if __name__ == "__main__":
    main()

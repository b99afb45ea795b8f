"""Cancel a client's tasks, then disconnect it.

Prints:
    the unfinished task is cancelled
    the client still works: 3
    the client has disconnected
"""

import time
from concurrent.futures import CancelledError

from scaler import Client, SchedulerClusterCombo


def main() -> None:
    cluster = SchedulerClusterCombo(n_workers=2)
    client = Client(address=cluster.get_address())

    # clear() cancels all unfinished tasks of this client, and deletes the objects that it sent.
    unfinished = client.submit(time.sleep, 60)
    client.clear()
    try:
        unfinished.result()
    except CancelledError:
        print("the unfinished task is cancelled")

    # The client remains usable.
    print("the client still works:", client.submit(max, 1, 3).result())

    # disconnect() is final: this client accepts no more tasks. Scheduler, workers and other clients keep running.
    client.disconnect()
    print("the client has disconnected")

    # If the scheduler is not protected, client.shutdown() stops it and all workers, for every client.
    # A local cluster is protected unless created with protected=False, and its own shutdown() stops it.
    cluster.shutdown()


if __name__ == "__main__":
    main()

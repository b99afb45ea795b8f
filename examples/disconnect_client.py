"""Give up what a client has asked for, and leave.

Prints:
    the unfinished task is cancelled
    the client works on: 3
    the client has left
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

    # The client itself can go on.
    print("the client works on:", client.submit(max, 1, 3).result())

    # disconnect() is for good: this client takes no more tasks. Scheduler, workers and other clients stay.
    client.disconnect()
    print("the client has left")

    # Where the scheduler is not protected, client.shutdown() would end it and all workers, for every client.
    # A local cluster is protected unless made with protected=False, and ends with its own shutdown().
    cluster.shutdown()


if __name__ == "__main__":
    main()

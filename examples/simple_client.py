"""Submit tasks one at a time, and get standard futures back.

Prints:
    16
    [0, 1, 4, 9, 16]
    10.0
    ZeroDivisionError: division by zero
"""

from concurrent.futures import as_completed

from scaler import Client, SchedulerClusterCombo


def square(value: int) -> int:
    return value * value


def divide(dividend: int, *, by: int) -> float:
    return dividend / by


def main() -> None:
    # A scheduler, and a worker with two slots, as processes on this machine.
    cluster = SchedulerClusterCombo(n_workers=2)

    with Client(address=cluster.get_address()) as client:
        print(client.submit(square, 4).result())

        futures = [client.submit(square, value) for value in range(5)]
        print([future.result() for future in futures])

        # The functions of concurrent.futures accept these futures.
        halves = [client.submit(divide, value, by=2) for value in (4, 6, 10)]
        print(sum(half.result() for half in as_completed(halves)))

        # result() raises the exception of the task.
        try:
            client.submit(divide, 1, by=0).result()
        except ZeroDivisionError as error:
            print(f"{type(error).__name__}: {error}")

    cluster.shutdown()


if __name__ == "__main__":
    main()

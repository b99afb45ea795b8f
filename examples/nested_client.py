"""Tasks that submit tasks and wait for them, to any depth, on any number of workers.

Prints:
    55
    [1, 2, 6, 24]
"""

from scaler import Client, SchedulerClusterCombo


def fibonacci(client: Client, n: int) -> int:
    if n < 2:
        return n
    # A client passed to a task works as it does outside. While a task waits for others, its slot runs other tasks.
    smaller = [client.submit(fibonacci, client, n - 1), client.submit(fibonacci, client, n - 2)]
    return sum(future.result() for future in smaller)


def factorial(n: int) -> int:
    if n < 2:
        return 1
    # Inside a task, a new client finds the scheduler by itself.
    with Client() as client:
        return n * client.submit(factorial, n - 1).result()


def main() -> None:
    cluster = SchedulerClusterCombo(n_workers=1)

    with Client(address=cluster.get_address()) as client:
        print(client.submit(fibonacci, client, 10).result())
        print(client.map(factorial, [1, 2, 3, 4]))

    cluster.shutdown()


if __name__ == "__main__":
    main()

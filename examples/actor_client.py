"""Actors: an instance that stays in one process of the cluster, and whose methods are called from here.

Prints:
    [1, 3, 6, 10]
    {'sum': 10, 'calls': 4}
    the actor could not count: ValueError
    14
"""

from typing import Any, Dict

from scaler import Client, SchedulerClusterCombo


class Statistics:
    def __init__(self) -> None:
        self.sum = 0
        self.calls = 0

    def add(self, value: int) -> int:
        if not isinstance(value, int):
            raise ValueError(f"{value!r} cannot be counted")
        self.sum += value
        self.calls += 1
        return self.sum

    def summary(self) -> Dict[str, int]:
        return {"sum": self.sum, "calls": self.calls}


def count(statistics: Any, value: int) -> int:
    """A task that calls the actor."""
    result: int = statistics.add(value).result()
    return result


def main() -> None:
    cluster = SchedulerClusterCombo(n_workers=2)

    with Client(address=cluster.get_address()) as client, client.actor(Statistics) as statistics:
        # Calls run one at a time, in the order of these lines; each returns a future at once.
        futures = [statistics.add(value) for value in (1, 2, 3, 4)]
        print([future.result() for future in futures])
        print(statistics.summary().result())

        try:
            statistics.add("five").result()
        except ValueError as error:
            print(f"the actor could not count: {type(error).__name__}")

        print(client.submit(count, statistics, 4).result())

    cluster.shutdown()


if __name__ == "__main__":
    main()

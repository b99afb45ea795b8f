"""Send a large object to the cluster once, and use it in many tasks.

Prints:
    [0, 1000, 2000, 3000]
    333332833333500000
"""

from typing import List

from scaler import Client, SchedulerClusterCombo


def pick(table: List[int], index: int) -> int:
    return table[index]


def sum_of_squares(table: List[int]) -> int:
    return sum(value * value for value in table)


def main() -> None:
    cluster = SchedulerClusterCombo(n_workers=2)
    table = list(range(1_000_000))

    with Client(address=cluster.get_address()) as client:
        # The reference stands for the object. The optional name is shown by monitors.
        table_reference = client.send_object(table, name="table")

        # A task that gets the reference as an argument sees the object itself.
        futures = [client.submit(pick, table_reference, index) for index in range(0, 4_000, 1_000)]
        print([future.result() for future in futures])
        print(client.submit(sum_of_squares, table_reference).result())

    cluster.shutdown()


if __name__ == "__main__":
    main()

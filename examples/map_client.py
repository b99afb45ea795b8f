"""Call one function on many arguments: `map` costs far less per call than as many `submit`s.

Prints:
    9.0
    [1, 8, 9]
    [11, 22, 33]
"""

import math

from scaler import Client, SchedulerClusterCombo


def add(left: int, right: int) -> int:
    return left + right


def main() -> None:
    cluster = SchedulerClusterCombo(n_workers=2)

    with Client(address=cluster.get_address()) as client:
        # One iterable: one argument per call. The result is a list, in the order of the arguments.
        roots = client.map(math.sqrt, range(100))
        print(roots[81])

        # Tuples in a single iterable are unpacked: a tuple holds the arguments of one call.
        print(client.map(pow, [(1, 5), (2, 3), (3, 2)]))

        # Several iterables: the first arguments, the second arguments, as with the builtin `map`.
        print(client.map(add, [1, 2, 3], [10, 20, 30]))

    cluster.shutdown()


if __name__ == "__main__":
    main()

"""Run a graph of tasks: the cluster runs tasks as they become ready, and keeps the intermediate results.

Prints:
    {'report': 'north: 60, south: 15'}
    60
    GraphCycleError: hen -> egg -> hen
"""

from typing import List

from scaler import Client, SchedulerClusterCombo
from scaler.exceptions import GraphCycleError


def load(region: str) -> List[int]:
    return {"north": [10, 20, 30], "south": [4, 5, 6]}[region]


def report(north: int, south: int) -> str:
    return f"north: {north}, south: {south}"


def main() -> None:
    cluster = SchedulerClusterCombo(n_workers=2)

    # A tuple whose first item is callable is a task; an argument that equals a key stands for that key's value.
    graph = {
        "home": "north",
        "north prices": (load, "home"),
        "south prices": (load, "south"),
        "north sum": (sum, "north prices"),
        "south sum": (sum, "south prices"),
        "report": (report, "north sum", "south sum"),
    }

    with Client(address=cluster.get_address()) as client:
        print(client.get(graph, ["report"]))

        # Or futures, one for each requested key. Only tasks that these keys need are run.
        futures = client.get(graph, ["north sum"], block=False)
        print(futures["north sum"].result())

        try:
            client.get({"egg": (list, "hen"), "hen": (list, "egg")}, ["hen"])
        except GraphCycleError as error:
            print(f"{type(error).__name__}: {' -> '.join(error.args[1])}")

    cluster.shutdown()


if __name__ == "__main__":
    main()

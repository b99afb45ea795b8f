"""Bugs in how results stay with their workers, are fetched when needed, and are made again when they are lost."""

from __future__ import annotations

from typing import Dict

from whole_system.bugs.planting import AGENT, SCHEDULER, PlantedBug

KEPT_RESULT_BUGS: Dict[str, PlantedBug] = {
    "a result that is kept is removed once it was fetched": PlantedBug(
        "agent", f"{AGENT}.transfers.served_files:ServedFiles.on_chunk_read", " and not self._keeps", ""
    ),
    "a worker does not learn the end of a result that it keeps": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.objects.object_reactions:ObjectReactions._leave_with",
        "record.announced_to.add(worker.number)",
        "pass",
    ),
    "a client learns of a result that only its worker has": PlantedBug(
        "scheduler", f"{SCHEDULER}.tasks.worker_reports:WorkerReports._hold_back", "if not held:", "if True:"
    ),
    "a held outcome is not reported when its result is lost": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.objects.object_reactions:ObjectReactions._on_bytes_lost",
        "self._reports.on_result_missing(record)",
        "pass",
    ),
    "what a lost worker had is not made again": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.graphs.graph_reactions:GraphReactions.on_result_lost",
        "graph.lost.append((made_by.node, record.object_id))",
        "pass",
    ),
    "tasks that wait for a lost result are not taken back": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.graphs.node_reruns:NodeReruns.rerun_next",
        "if graph.states[successor] == TaskState.QUEUED:",
        "if False:",
    ),
    "a node that runs again does not count for those that wait for it": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.graphs.node_reruns:NodeReruns._reopen",
        "graph.missing[successor] += 1",
        "pass",
    ),
    "what a node needs to run again goes before its result": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.graphs.graph_reactions:GraphReactions._keep_object",
        "self._reruns.keep_recipe(graph, node, object_id)",
        "pass",
    ),
    "batches of a graph are told apart by their first nodes": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.peers.sessions:ClientSession.add_graph_batch",
        "batch.key = self._last_graph_batch = self._last_graph_batch + 1",
        "batch.key = batch.ids[0]",
    ),
}
QUIET_KEPT_RESULT_BUGS: Dict[str, PlantedBug] = {
    "what nodes before a lost one need goes with their results": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.tasks.task_outcomes:TaskOutcomes._forget_result",
        "made_by.node not in graph.recipe_users",
        "True",
    ),
    "what a node was given by others is not kept": PlantedBug(
        "scheduler", f"{SCHEDULER}.graphs.node_reruns:NodeReruns._reopen", "predecessor in given and", "False and"
    ),
    "what nodes before another need is kept until the graph ends": PlantedBug(
        "scheduler", f"{SCHEDULER}.tasks.task_outcomes:TaskOutcomes.forget_recipes", "nodes += unused", "pass"
    ),
}

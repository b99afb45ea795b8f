"""Bugs in how workers fetch from one another: tickets, holders, what follows when one of them is gone.

Rule: whole systems find those after which something is wrong or waits for ever. After the quiet ones, all results are
right: the scheduler relays, a transfer more is made, or something is kept for longer. Unit tests find these.
"""

from __future__ import annotations

from typing import Dict

from whole_system.bugs.planting import AGENT, SCHEDULER, PlantedBug

_TRANSFERS = f"{SCHEDULER}.objects.object_transfers:ObjectTransfers"
_TABLE = f"{SCHEDULER}.objects.object_table:ObjectTable"
_FETCHES = f"{AGENT}.transfers.direct_fetches:DirectFetches"
_SERVICE = "scaler.data_serving.ticket_service:TicketService"
_OBJECTS = f"{AGENT}.worker_objects:WorkerObjects"
_WINDOW = "scaler_protocol.session.fetching:FetchWindow"

TRANSFER_BUGS: Dict[str, PlantedBug] = {
    "a fetch that has failed is not begun again": PlantedBug(
        "agent", f"{_FETCHES}._fail", "self._ask(object_id, fetch.progress, fetch.ticket.holder)", "pass"
    ),
    "a fetch goes on elsewhere without what was under way": PlantedBug(
        "session", f"{_WINDOW}.request_again", "*(PartRequest(*each) for each in self._unanswered.items())", ""
    ),
    "what is whole does not become a copy for others": PlantedBug(
        "agent", f"{_OBJECTS}._keep_copy", "self.served.add(object_id, path, fetch.window.size or 0)", "pass"
    ),
    "the scheduler is not asked when it names no holder": PlantedBug(
        "agent", f"{_OBJECTS}.on_no_holder", "self._request(object_id, fetch)", "pass"
    ),
    "what was written of an object that was forgotten stays": PlantedBug(
        "agent", f"{_OBJECTS}.on_chunk_written", "self._remove([path])", "pass"
    ),
    "what is not found on the host is not fetched either": PlantedBug(
        "agent", f"{_OBJECTS}.on_copy_linked", "self.transfers.fetches.go_on(object_id, fetch)", "pass"
    ),
    "how fast a worker sends is known after it is gone": PlantedBug(
        "scheduler", f"{_TRANSFERS}.forget_worker", "self.rates.forget(number)", "pass"
    ),
}
QUIET_TRANSFER_BUGS: Dict[str, PlantedBug] = {
    "tasks wait where their bytes are however long that takes": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.rebalance:_waiting_at_their_bytes",
        "each.waits_until > now",
        "each.waits_until",
    ),
    "how fast a worker sends is not measured": PlantedBug(
        "scheduler",
        f"{_TRANSFERS}._measure",
        "self.rates.complete(holder, record.size, self._now(), transfer.began_at)",
        "pass",
    ),
    "who waits for a copy is forgotten when the last holder is gone": PlantedBug(
        "scheduler", f"{_TRANSFERS}.end_all", "() if is_deleted else waiting", "()"
    ),
    "who waits for a copy is not told when its fetcher is gone": PlantedBug(
        "scheduler", f"{_TRANSFERS}.forget_worker", "self.answer_waiting(record)", "pass"
    ),
    "a holder that failed is named again and again": PlantedBug(
        "scheduler", f"{_TRANSFERS}._choose", "number not in failed", "True"
    ),
    "a worker fetches from elsewhere what another one on its host is fetching": PlantedBug(
        "scheduler", f"{_TRANSFERS}.answer_waiting", "fetcher.place in receiving or are_all_used", "are_all_used"
    ),
    "who fetches and does not go on is waited for": PlantedBug(
        "scheduler", f"{_TRANSFERS}.watch", "now >= until", "False"
    ),
    "a task goes to any host although its bytes are on one": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.kept_bytes:keeper_of_most",
        "return _neighbour_of_most(state, idle, span), 0.0",
        "return None, 0.0",
    ),
    "the bytes of a task do not count if one of another client comes before it": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.task_placement:Placement._is_next_by_bytes",
        "batch is not None and",
        "False and",
    ),
    "a slot is not taken back when the bytes are there": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.objects.object_reactions:ObjectReactions._await_no_more",
        "worker.await_no_more(object_id, is_there)",
        "False",
    ),
    "a worker that fetches has any number of tasks": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.peers.worker_session:WorkerSession._count_awaited",
        "min(len(self._awaited), self.hello.slots)",
        "len(self._awaited)",
    ),
    "a client waits for all tasks of another one that are in line for their bytes": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.placement.task_placement:Placement._place_class",
        "if self._workers.lined_up and self._most > 0:",
        "if False:",
    ),
    "tasks are asked back whose bytes are on their way": PlantedBug(
        "scheduler", f"{SCHEDULER}.placement.rebalance:Rebalance.rebalance", " - donor.slots_given_up", ""
    ),
    "a holder on the same host is not preferred": PlantedBug(
        "scheduler", f"{_TRANSFERS}.answer_waiting", "near.get(fetcher.place, ())", "()"
    ),
    "hosts of one name are taken for one": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.peers.sessions:Session.__init__",
        "{hello.data_address.rpartition(':')[0] or number}",
        "",
    ),
    "a holder does not learn of a ticket": PlantedBug(
        "scheduler", f"{_TRANSFERS}._issue", '(holder, "", fetcher.hello.data_key),', ""
    ),
    "an object is lost with its first holder": PlantedBug(
        "scheduler", f"{_TABLE}.lose_holder", " or self.go_on(record)", ""
    ),
    "a worker that did not say so is told to fetch from others": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.objects.object_table:_storage_of",
        "(record.has_holders and fetches_from_workers(worker))",
        "record.has_holders",
    ),
    "a holder that drains is waited for although others have its objects": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.objects.object_reactions:ObjectReactions.hand_over",
        "needless.append(record.object_id)",
        "pass",
    ),
    "what stays on a host says how fast it sends": PlantedBug(
        "scheduler", f"{_TRANSFERS}._issue", "holder is None or holder.place != fetcher.place", "True"
    ),
    "objects of two clusters have files of one name": PlantedBug(
        "agent",
        f"{_OBJECTS}._own_name",
        'f"{object_name(object_id)}-{self._token}" if self._token else object_name(object_id)',
        "object_name(object_id)",
    ),
    "the file of a holder on the same host is not looked for": PlantedBug(
        "agent", f"{_FETCHES}.on_ticket", "self._owner.look_nearby(ticket.id)", "self._connect(fetch)"
    ),
    "a holder has failed when its file takes long to be looked for": PlantedBug(
        "agent", f"{_FETCHES}.watch", " or not fetch.connection", ""
    ),
    "a silent holder is waited for": PlantedBug(
        "agent", f"{_FETCHES}.watch", "now - fetch.heard_at >= limit_seconds", "False"
    ),
    "a distant holder is asked for no more parts than a near one": PlantedBug(
        "agent", f"{_FETCHES}.on_message", "fetch.window.most_unanswered = self._most_open(object_id)", "pass"
    ),
    "the next holder is asked for as many parts as the one before": PlantedBug(
        "agent", f"{_FETCHES}.on_connected", "fetch.window.most_unanswered = self._most_open(object_id)", "pass"
    ),
    "all objects from one holder come side by side": PlantedBug(
        "agent", f"{_FETCHES}._most_open", "return OPEN_BEHIND_OTHERS", "return fetch.pace.most"
    ),
    "the scheduler is asked for as few parts as a holder behind others": PlantedBug(
        "agent", f"{_FETCHES}.on_ticket", "fetch.window.most_unanswered = fetch.pace.most", "pass"
    ),
    "data connections outlive their session": PlantedBug("agent", f"{_FETCHES}.clear", "self._close(fetch)", "pass"),
    "the next fetch does not begin when one has ended": PlantedBug(
        "agent", f"{_FETCHES}.end", "self._begin_next()", "pass"
    ),
    "a ticket that comes after its request is of no use": PlantedBug(
        "agent", f"{_SERVICE}.on_ticket", "caller.early and caller.early[0].ticket == ticket.secret", "False"
    ),
    "tickets of objects that are gone are kept": PlantedBug(
        "agent", f"{_OBJECTS}._forget", "self.transfers.service.forget(object_id)", "pass"
    ),
    "callers that ask for nothing stay connected": PlantedBug(
        "agent", f"{_SERVICE}.watch", "now - caller.heard_at >= limit", "False"
    ),
    "a copy is removed although others count on it": PlantedBug(
        "agent", f"{_OBJECTS}.forget_unused", "if each not in self.served", ""
    ),
}

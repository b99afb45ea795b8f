"""Bugs in how workers fetch what the scheduler has, from it and from one another. Rule: as of `transfer_bugs`; all are
quiet, and unit tests find them."""

from __future__ import annotations

from typing import Dict

from whole_system.bugs.planting import SCHEDULER, PlantedBug

_TRANSFERS = f"{SCHEDULER}.objects.object_transfers:ObjectTransfers"
_REACH = f"{SCHEDULER}.objects.worker_reach:WorkerReach"
_TABLE = f"{SCHEDULER}.objects.object_table"
_BYTES = f"{SCHEDULER}.placement.kept_bytes"
_WORKER = f"{SCHEDULER}.peers.worker_session:WorkerSession"

QUIET_SPREAD_BUGS: Dict[str, PlantedBug] = {
    "what workers fetch from the scheduler is not counted": PlantedBug(
        "scheduler", f"{_TRANSFERS}._issue", "copies.from_here += 1", "pass"
    ),
    "a fetch from the scheduler that has failed counts": PlantedBug(
        "scheduler", f"{_TRANSFERS}._end", "copies.from_here -= 1", "pass"
    ),
    "the scheduler comes before workers that have the bytes": PlantedBug(
        "scheduler",
        f"{_TRANSFERS}._choose",
        "(fewest >= COPIES_PER_HOLDER and copies.from_here < fewest)",
        "copies.from_here < fewest",
    ),
    "who asks for a ticket of any object is remembered": PlantedBug(
        "scheduler", f"{_TRANSFERS}.request", " and object_id in fetcher.to_fetch", ""
    ),
    "workers that see the files are told to fetch": PlantedBug(
        "scheduler", f"{_TABLE}:has_to_fetch", "(worker.is_apart and record.size >= spread_bytes)", "True"
    ),
    "small objects are spread": PlantedBug(
        "scheduler", f"{_TABLE}:has_to_fetch", " and record.size >= spread_bytes", ""
    ),
    "arguments of one task are spread": PlantedBug(
        "scheduler", f"{_TABLE}:_storage_of", "record.kind != m.ObjectKind.ARGUMENTS or record.references > 1", "True"
    ),
    "a slot is not taken back when the last bytes were sent": PlantedBug(
        "scheduler", f"{_TABLE}:ObjectTable.serve", "if request.offset + length >= record.size:", "if False:"
    ),
    "a slot is taken back when the first bytes were sent": PlantedBug(
        "scheduler", f"{_TABLE}:ObjectTable.serve", "if request.offset + length >= record.size:", "if True:"
    ),
    "who waits for a file that is lost waits for ever": PlantedBug(
        "scheduler", f"{_TABLE}:ObjectTable.give_up", "self._settle_copies(record)", "pass"
    ),
    "who fetches an object is remembered after its end": PlantedBug(
        "scheduler",
        f"{_TABLE}:ObjectTable._remove_if_unused",
        "self._transfers.end_all(record, is_deleted=True)",
        "pass",
    ),
    "a worker that has an object is taken to fetch it": PlantedBug(
        "scheduler", f"{_WORKER}.await_no_more", "self.to_fetch.discard(object_id)", "pass"
    ),
    "what a worker had to fetch is remembered after its end": PlantedBug(
        "scheduler", f"{_WORKER}.forget_object", "self.to_fetch.discard(object_id)", "pass"
    ),
    "copies of what the scheduler has do not count": PlantedBug(
        "scheduler",
        f"{_BYTES}:_moved",
        "record.is_elsewhere or (state.apart and record.size >= spread_bytes)",
        "record.is_elsewhere",
    ),
    "a task goes to any host although a worker sees the file": PlantedBug(
        "scheduler",
        f"{_BYTES}:_best_of_idle",
        "there[worker] = max(there[worker], here_bytes)",
        "pass",
    ),
    "the next arguments do not come while a task runs": PlantedBug(
        "scheduler", f"{_BYTES}:_is_missing", "record.is_elsewhere or worker.is_apart", "record.is_elsewhere"
    ),
    "a worker that comes to see the files is taken not to": PlantedBug(
        "scheduler", f"{SCHEDULER}.state:SchedulerState.note_sharing", "others.pop(worker.number, None)", "pass"
    ),
    "a worker that is gone is taken to fetch": PlantedBug(
        "scheduler", f"{SCHEDULER}.state:SchedulerState.remove_worker", "self.apart.pop(worker.number, None)", "pass"
    ),
    "a worker that does not reach others tries each": PlantedBug(
        "scheduler", f"{_TRANSFERS}.request", "self.between.fail(fetcher.number, failed)", "pass"
    ),
    "a worker that has failed once fetches from the scheduler only": PlantedBug(
        "scheduler", f"{_TRANSFERS}.complete", "self.between.succeed(fetcher, holder)", "pass"
    ),
    "what only workers have is not fetched by who has failed once": PlantedBug(
        "scheduler", f"{_TRANSFERS}.answer_waiting", "record.is_here and self.between", "self.between"
    ),
    "who has failed once waits for copies that it does not reach": PlantedBug(
        "scheduler", f"{_TRANSFERS}.answer_waiting", "is_wary or not receiving", "not receiving"
    ),
    "what a worker reached is remembered after it has failed": PlantedBug(
        "scheduler", f"{_REACH}.fail", "self._part(fetcher, holder)", "pass"
    ),
    "what a worker reached is remembered after its end": PlantedBug(
        "scheduler", f"{_TRANSFERS}.forget_worker", "self.between.forget(number)", "pass"
    ),
    "one after the other waits for who does not say that it holds": PlantedBug(
        "scheduler", f"{_TRANSFERS}.watch", "transfer._replace(is_vain=True)", "transfer"
    ),
    "no copy of what the scheduler has sent is waited for": PlantedBug(
        "scheduler", f"{_TRANSFERS}._is_vain", ".is_vain", ".is_sent"
    ),
    "the last parts are taken to be there when they were sent": PlantedBug(
        "scheduler", f"{_TRANSFERS}.on_sent", "HOLD_SECONDS + rest_seconds", "HOLD_SECONDS"
    ),
    "who gives up without a word is taken to fetch": PlantedBug(
        "scheduler", f"{_TRANSFERS}.watch", "self._end(*key, is_complete=False)", "pass"
    ),
    "the time of a transfer that does not end counts for others": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.objects.transfer_rates:TransferRates.complete",
        "max(counted_until, began_at)",
        "counted_until",
    ),
    "how fast bytes come to the scheduler counts as its rate": PlantedBug(
        "scheduler", f"{_TRANSFERS}._issue", "number != HERE or record.arrived >= record.size", "True"
    ),
    "what is lost of a copy is taken to be there": PlantedBug(
        "scheduler",
        f"{SCHEDULER}.objects.object_reactions:ObjectReactions._drop_copies",
        "worker.to_fetch.add(object_id)",
        "pass",
    ),
    "tasks go where bytes are though others are quicker": PlantedBug(
        "scheduler", f"{_BYTES}:_best_of_idle", "worker.pace.of(key) + is_scarce", "is_scarce"
    ),
    "tasks go to any of the workers that all have the bytes": PlantedBug(
        "scheduler",
        f"{_BYTES}:_best_of_idle",
        "if len(set(there.values())) < 2 and not (len(able) == 1 and len(idle) == 1):",
        "if False:",
    ),
}

"""Transfers of objects to workers, from others and from clients: who fetches what from whom, with tickets.

    TicketRequest ─▶ choose a holder ─┬─▶ Ticket to the holder, and to the fetcher ─▶ hold: the fetcher is one, too
                                      ├─▶ wait, while a copy is on its way to this host, or all holders have been
                                      │   fetched from often and a copy is on its way to any
                                      └─▶ Ticket without a holder: the fetcher requests the bytes from the scheduler

Rules:
- A holder is fetched from COPIES_PER_HOLDER times, if others can be: so copies spread like a tree, and each of them
  leaves its source a few times only, however many workers need it. The scheduler is one of them, if it has the bytes,
  and comes after the others: it has more to do.
- The bytes reach a host once: one worker fetches what no other one there has, and the others fetch it from that one.
- Who waits waits for a copy that is on its way: until it arrives, fails, its fetcher is gone, or it has taken twice as
  long as it should. So who fetches, and does not go on, stops no one else.
- A holder from which a worker could not fetch an object is not named to it again for that object; a client not for
  others either (see `client_reach`). Such a worker fetches what the scheduler has from there (see `worker_reach`).
- How long transfers take, from their tickets on, is measured: it says what others from that holder will take. What the
  scheduler sends while it arrives there says nothing, nor does what stays on a host, where a worker may even find the
  file of another one.
- If a worker does not say that it holds what it has got from the scheduler, no one waits for copies any more.
- A ticket is a secret that only its two ends are told. It is made from a random seed, so that a run can be repeated.
- When a fetcher's session ends, the holders take back its tickets: its key may not be admitted any more.

Source: SCL-OBJ-025 to SCL-OBJ-027, SCL-OBJ-035, SCL-OBJ-039.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from scaler_appliance.core.effects import Effect, Send
from scaler_appliance.core.objects.client_reach import ClientReach
from scaler_appliance.core.objects.object_records import HERE, Copies, ObjectRecord
from scaler_appliance.core.objects.transfer_rates import TransferRates
from scaler_appliance.core.objects.worker_reach import WorkerReach
from scaler_appliance.core.peers.sessions import ClientSession, Session
from scaler_appliance.core.peers.worker_session import WorkerSession
from scaler_protocol import messages as m
from scaler_protocol.session.features import KEPT_ARGUMENTS, PEER_FETCH

COPIES_PER_HOLDER = 2
MAXIMUM_TRANSFERS = 32  # from one worker at once, of all objects
TICKET_SECONDS = 30.0
PATIENCE, PATIENCE_SECONDS = 2.0, 5.0
"""A transfer is waited for so many times as long as it should take beside another one, and so much longer."""
HOLD_SECONDS = 2.0
"""So long after the last part has come, a worker says that it holds an object, or will not."""
SECRET_BYTES = 32


class _Transfer(NamedTuple):
    """One that is on its way.

    Attributes:
        awaited_until: others do not wait for it any longer.
        is_measured: it says how fast its holder sends.
        is_sent: the scheduler has sent all bytes, and the fetcher has not said that it holds them.
        is_vain: it has not for so long that it may never say so.
    """

    secret: bytes
    awaited_until: float
    began_at: float
    is_measured: bool
    is_sent: bool = False
    is_vain: bool = False


def fetches_from_workers(worker: WorkerSession) -> bool:
    """Whether a worker can fetch from others, and knows of tickets."""
    return PEER_FETCH in worker.hello.features


# SCL-OBJ-038
def serves_workers(client: ClientSession) -> bool:
    """Whether workers can fetch from a client what it keeps, unless something is between them."""
    return KEPT_ARGUMENTS in client.hello.features and bool(client.hello.data_address)


class ObjectTransfers:
    """The transfers to workers.

    Parameters:
        workers, clients: all of them, by session.
        seed: random bytes, from which secrets are made.
        now: tells the time of the event that is being handled, in seconds.
        rates: how fast transfers are, by holder; updated here.
        window_bytes: of an object, that may be on their way from the scheduler to a worker at once.
    """

    def __init__(
        self,
        effects: List[Effect],
        workers: Dict[int, WorkerSession],
        clients: Dict[int, ClientSession],
        seed: bytes,
        now: Callable[[], float],
        rates: TransferRates,
        window_bytes: int,
    ) -> None:
        self.rates = rates
        self._window_bytes = window_bytes
        self._effects = effects
        self.reach = ClientReach()
        self.between = WorkerReach()
        self._workers = workers
        self._clients = clients
        self._seed = seed
        self._now = now
        self._tickets = 0  # that were issued
        self._serving: Dict[int, int] = {}  # transfers by holder
        self._of_fetcher: Dict[int, Dict[int, ObjectRecord]] = {}  # what each worker fetches or waits for, by object
        self._transfers: Dict[Tuple[int, int], _Transfer] = {}  # by fetcher and object
        self._from_here: Dict[Tuple[int, int], ObjectRecord] = {}  # those from the scheduler, until all is sent
        self._awaited: Dict[int, Tuple[ObjectRecord, float]] = {}  # by object: until when some wait for a transfer

    # SCL-OBJ-025
    def request(self, fetcher: WorkerSession, object_id: int, record: Optional[ObjectRecord], failed: int) -> None:
        """A worker asks where it can fetch an object; it does not go on with what it was told before.

        Parameters:
            record: of the object; None: it is not there for this worker.
            failed: the holder from which it could not fetch; 0: none.
        """
        if record is not None and record.copies is None and record.is_here and object_id in fetcher.to_fetch:
            record.copies = Copies(record.size)
        copies = None if record is None else record.copies
        named = 0 if copies is None else copies.transfers.get(fetcher.number, 0)
        self._end(fetcher.number, object_id, is_complete=False)
        if record is None or copies is None:
            self._send_to_scheduler(fetcher, object_id)
            return
        if failed:
            copies.failed.setdefault(fetcher.number, set()).add(failed)
            # SCL-OBJ-039
            if failed == named and self._is_client(failed):
                self.reach.fail(failed, fetcher.number)
            elif failed == named and failed in self._workers:
                self.between.fail(fetcher.number, failed)
        self._of_fetcher.setdefault(fetcher.number, {})[object_id] = record
        copies.waiting[fetcher.number] = None
        self.answer_waiting(record)

    def complete(self, fetcher: int, record: ObjectRecord) -> None:
        """A worker has fetched all bytes of an object, and is about to be one of its holders."""
        holder = 0 if record.copies is None else record.copies.transfers.get(fetcher, 0)
        if holder:
            self._measure(holder, record, self._transfers[fetcher, record.object_id])
            if self._is_client(holder):
                self.reach.succeed(holder)
            elif holder in self._workers:
                self.between.succeed(fetcher, holder)
        self._end(fetcher, record.object_id, is_complete=True)

    def _measure(self, holder: int, record: ObjectRecord, transfer: _Transfer) -> None:
        if transfer.is_measured and not transfer.is_vain:
            self.rates.complete(holder, record.size, self._now(), transfer.began_at)

    def on_sent(self, fetcher: int, record: ObjectRecord) -> None:
        """The scheduler has sent a worker the last part of an object; some parts are on their way."""
        transfer = self._transfers.get((fetcher, record.object_id))
        if transfer is not None and (fetcher, record.object_id) in self._from_here:
            rest_seconds = PATIENCE * min(record.size, self._window_bytes) / self.rates.of(HERE)
            until = max(transfer.awaited_until, self._now() + HOLD_SECONDS + rest_seconds)
            self._transfers[fetcher, record.object_id] = transfer._replace(is_sent=True, awaited_until=until)

    def end_here(self, record: ObjectRecord) -> None:
        """The scheduler has the bytes of an object no longer."""
        for fetcher, holder in list(record.copies.transfers.items()) if record.copies is not None else ():
            if holder == HERE:
                self._end(fetcher, record.object_id, is_complete=False)

    def cancel(self, fetcher: int, record: ObjectRecord) -> None:
        """A worker does not go on to fetch an object."""
        self._end(fetcher, record.object_id, is_complete=False)
        self.answer_waiting(record)

    def _end(self, fetcher: int, object_id: int, is_complete: bool) -> None:
        own = self._of_fetcher.get(fetcher)
        record = None if own is None else own.pop(object_id, None)
        if own is not None and not own:
            del self._of_fetcher[fetcher]
        if record is None:
            return
        copies = record.copies
        assert copies is not None, "someone fetches what no one has"
        copies.waiting.pop(fetcher, None)
        number = copies.transfers.pop(fetcher, 0)
        if number:
            self._from_here.pop((fetcher, object_id), None)
            if not self._transfers.pop((fetcher, object_id)).is_vain:
                self._count_serving(number, -1)
            holder = copies.holders.get(number)
            if is_complete:
                pass
            elif number == HERE:
                copies.from_here -= 1
            elif holder is not None:
                holder.copies -= 1

    def _count_serving(self, holder: int, change: int) -> None:
        count = self._serving.get(holder, 0) + change
        if count:
            self._serving[holder] = count
        else:
            del self._serving[holder]
            self.rates.pause(holder)

    def answer_waiting(self, record: ObjectRecord) -> None:
        """Tell those that wait, in their order, where they can fetch an object, as far as that is known now."""
        object_id, copies = record.object_id, record.copies
        self._awaited.pop(object_id, None)
        if copies is None or not copies.waiting:
            return
        receiving = {self._workers[number].place for number in self._ends(object_id, copies)}
        is_vain = self._is_vain(object_id, copies)
        near: Dict[str, List[int]] = {}  # holders by their place
        for number in copies.holders:
            holder = self._holder(number)
            if holder is not None:
                near.setdefault(holder.place, []).append(number)
        are_all_used = False  # often enough, so that those wait that have none near
        for number in list(copies.waiting):
            fetcher = self._workers[number]
            is_wary = record.is_here and self.between.is_wary(number)
            beside: Iterable[int] = near.get(fetcher.place, ())
            beside = self._proven(number, beside) if is_wary else beside
            found = self._choose(number, copies, beside, is_last=is_vain or is_wary or fetcher.place not in receiving)
            if found == 0:
                if not (is_vain or is_wary) and (fetcher.place in receiving or are_all_used):
                    continue
                is_last = is_vain or is_wary or not receiving
                everyone: Iterable[int] = self._proven(number, copies.holders) if is_wary else copies.holders
                found = self._choose(number, copies, everyone, is_last=is_last, or_here=record.is_here)
                are_all_used = found is None and number not in copies.failed
            if found is None:
                continue
            del copies.waiting[number]
            if found:
                self._issue(fetcher, record, copies, found)
                receiving.add(fetcher.place)
            else:
                self._end(number, object_id, is_complete=False)
                self._send_to_scheduler(fetcher, object_id)
        if copies.waiting:
            self._awaited[object_id] = record, min(self._ends(object_id, copies).values())

    def _ends(self, object_id: int, copies: Copies) -> Dict[int, float]:
        """Until when each transfer of an object is waited for, by fetcher, if that is not over."""
        now = self._now()
        ends = {number: self._transfers[number, object_id].awaited_until for number in copies.transfers}
        return {number: end for number, end in ends.items() if end > now}

    def _is_vain(self, object_id: int, copies: Copies) -> bool:
        """Whether a worker has not said that it holds what it has got from here: others may not say so, either."""
        return any(self._transfers[number, object_id].is_vain for number in copies.transfers)

    def watch(self, now: float) -> None:
        """Called about once a second: who has waited long enough for a copy is told another holder; and a worker that
        requests no more of what the scheduler was to send has given it up."""
        for key, record in list(self._from_here.items()):
            transfer = self._transfers[key]
            if now < transfer.awaited_until:
                continue
            if transfer.is_sent:
                self._transfers[key] = transfer._replace(is_vain=True)
                del self._from_here[key]
                self._count_serving(HERE, -1)
            else:
                self._end(*key, is_complete=False)
            self.answer_waiting(record)
        for record, until in list(self._awaited.values()):
            if now >= until:
                self.answer_waiting(record)

    # SCL-OBJ-027
    def _choose(
        self, fetcher: int, copies: Copies, among: Iterable[int], is_last: bool, or_here: bool = False
    ) -> Optional[int]:
        """The one among some holders that a worker can fetch from; 0: no one; None: it has to wait.

        Parameters:
            is_last: no copy is on its way, for which it could wait.
            or_here: the scheduler has the bytes, too.
        """
        failed = copies.failed.get(fetcher, ())
        best, fewest = 0, 0
        for number in among:
            is_possible = number != fetcher and number not in failed and self._can_serve(number, fetcher)
            if is_possible and (not best or copies.holders[number].copies < fewest):
                best, fewest = number, copies.holders[number].copies
        if or_here and (not best or (fewest >= COPIES_PER_HOLDER and copies.from_here < fewest)):
            best, fewest = HERE, copies.from_here
        return None if best and fewest >= COPIES_PER_HOLDER and not is_last else best

    def _proven(self, fetcher: int, holders: Iterable[int]) -> List[int]:
        """The holders from which a worker has fetched before, and clients, of which `reach` knows more."""
        return [each for each in holders if each in self._clients or self.between.has_fetched(fetcher, each)]

    def _holder(self, number: int) -> Optional[Session]:
        return self._workers.get(number) or self._clients.get(number)

    def _is_client(self, number: int) -> bool:
        """Whether a holder is a client that is there: of one that is being released nothing is to be kept."""
        client = self._clients.get(number)
        return client is not None and not client.is_gone

    def _can_serve(self, number: int, fetcher: int) -> bool:
        client = self._clients.get(number)
        if client is not None:
            is_reached = not client.is_gone and serves_workers(client) and self.reach.may_fetch(fetcher, number)
            return is_reached and self._serving.get(number, 0) < MAXIMUM_TRANSFERS
        worker = self._workers.get(number)
        if worker is None or worker.is_gone or worker.leaving or not worker.hello.data_address:
            return False
        return fetches_from_workers(worker) and self._serving.get(number, 0) < MAXIMUM_TRANSFERS

    # SCL-OBJ-026
    def _issue(self, fetcher: WorkerSession, record: ObjectRecord, copies: Copies, number: int) -> None:
        object_id, holder, now = record.object_id, self._holder(number), self._now()
        if number == HERE:
            copies.from_here += 1
        else:
            copies.holders[number].copies += 1
        copies.transfers[fetcher.number] = number
        self._count_serving(number, 1)
        is_whole = number != HERE or record.arrived >= record.size
        is_measured = is_whole and (holder is None or holder.place != fetcher.place)
        if is_measured:
            self.rates.begin(number, now)
        shares = max(COPIES_PER_HOLDER, self._serving[number])  # of what the holder sends in all
        seconds = PATIENCE * shares * copies.size / self.rates.of(number) + PATIENCE_SECONDS
        secret = b"" if holder is None else self._next_secret()
        self._transfers[fetcher.number, object_id] = _Transfer(secret, now + seconds, now, is_measured)
        if holder is None:
            self._from_here[fetcher.number, object_id] = record
            self._send_to_scheduler(fetcher, object_id)
            return
        lifetime_milliseconds = int(TICKET_SECONDS * 1000)
        end: Session
        for end, address, key in (
            (holder, "", fetcher.hello.data_key),
            (fetcher, holder.hello.data_address, holder.hello.data_key),
        ):
            ticket = m.Ticket(
                id=object_id,
                holder=number,
                secret=secret,
                lifetime_milliseconds=lifetime_milliseconds,
                address=address,
                key=key,
            )
            self._effects.append(Send(end.peer, ticket))

    def _next_secret(self) -> bytes:
        self._tickets += 1
        return blake2b(self._tickets.to_bytes(8, "big"), key=self._seed, digest_size=SECRET_BYTES).digest()

    def _send_to_scheduler(self, fetcher: WorkerSession, object_id: int) -> None:
        self._effects.append(Send(fetcher.peer, m.Ticket(id=object_id)))

    def end_all(self, record: ObjectRecord, is_deleted: bool) -> None:
        """No one has all bytes of an object any more.

        Parameters:
            is_deleted: the object has ended, which its workers are told; else they request it from the scheduler.
        """
        object_id, copies = record.object_id, record.copies
        if copies is None:
            return
        self._awaited.pop(object_id, None)
        waiting = list(copies.waiting)
        for number in (*waiting, *copies.transfers):
            self._end(number, object_id, is_complete=True)
        for number in () if is_deleted else waiting:
            self._send_to_scheduler(self._workers[number], object_id)
        record.copies = None

    def forget_worker(self, number: int) -> Iterator[int]:
        """A worker is gone: it fetches nothing any more, and sends nothing. Steps."""
        self.rates.forget(number)
        self.reach.forget_worker(number)
        self.between.forget(number)
        while number in self._of_fetcher:
            object_id, record = next(iter(self._of_fetcher[number].items()))
            copies = record.copies
            assert copies is not None, "someone fetches what no one has"
            self._take_back(number, object_id, copies)
            self._end(number, object_id, is_complete=False)
            copies.failed.pop(number, None)
            self.answer_waiting(record)
            yield 1

    # SCL-OBJ-035
    def _take_back(self, fetcher: int, object_id: int, copies: Copies) -> None:
        """The holder serves no one any more with the ticket of a fetcher that is gone."""
        holder = self._holder(copies.transfers.get(fetcher, 0))
        if holder is not None and not holder.is_gone:
            secret = self._transfers[fetcher, object_id].secret
            ticket = m.Ticket(id=object_id, holder=holder.number, secret=secret, lifetime_milliseconds=0)
            self._effects.append(Send(holder.peer, ticket))

    def forget_client(self, number: int) -> None:
        """A client is gone, and what it kept is not to be fetched there."""
        self.rates.forget(number)
        self.reach.forget_client(number)

    def check_invariants(self, records: List[ObjectRecord]) -> None:
        """Check that transfers and those who wait are counted, and that none of those waits for ever."""
        holders = self._workers.keys() | self._clients.keys()
        assert self.rates.holders <= holders | {HERE}, "the rates of holders that are gone are kept"
        self.reach.check_clients(set(self._clients))
        self.between.check_workers(set(self._workers))
        fetching, serving = 0, 0
        for record in records:
            copies = record.copies
            if copies is None:
                continue
            assert copies.holders.keys() <= holders, f"object {record.object_id:x} has holders that are gone"
            assert copies.holders or record.is_here, f"no one has all bytes of object {record.object_id:x}"
            assert copies.transfers or not copies.waiting, f"workers wait for object {record.object_id:x} for ever"
            assert not copies.waiting.keys() & copies.transfers.keys()
            for number in (*copies.waiting, *copies.transfers):
                assert self._of_fetcher[number][record.object_id] is record
            fetching += len(copies.waiting) + len(copies.transfers)
            serving += len(copies.transfers)
        assert fetching == sum(map(len, self._of_fetcher.values()))
        assert serving == len(self._transfers)
        assert sum(self._serving.values()) == sum(not each.is_vain for each in self._transfers.values())
        assert len(self._from_here) == self._serving.get(HERE, 0)
        waited_for = {record.object_id for record in records if record.copies is not None and record.copies.waiting}
        assert waited_for == self._awaited.keys(), "workers wait for copies without a time limit"

"""The scheduler's program around the real core: connections, object files, ticks, and its death and return.

Rules:
- As the real shell does, it reads what has come, ticks, and performs effects until there are none.
- After every few ticks, the core's invariants are checked, which costs more than a tick. The scheduler's own simulator
  checks them after each message.
- A monitor comes and goes, and compares what it is told with what is so; it draws from a chance of its own.
- No peer here is malicious: a peer that is accused of breaking the protocol has found a bug.
- Parts of objects are sent in turns, as in the shell: after other messages that the core has sent later.
- What the heap is said to use is drawn; in the end it is little.
- A new scheduler knows nothing, has another object directory, may grant less, and begins with sessions above those of
  the old one.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any, Deque, Dict, List, Set, Tuple, Union

from simulation.monitors import Monitor
from whole_system.judges.placement_judge import PlacementJudge
from whole_system.judges.tenant_judge import TenantJudge
from whole_system.judges.worker_dialogues import WorkerDialogues
from whole_system.links.resumed_sessions import LinkJudge, ResumedSessions
from whole_system.network import Network, Peer
from whole_system.simulated_world import NEVER, Process, World
from whole_system.tenants import NAMES, Tenants
from whole_system.units.release_judge import ReleaseJudge
from whole_system.user_tasks import Task, key_of, split

from scaler.client.core.outbox import ROOM_BYTES
from scaler.values.sizes import INLINE_BYTES
from scaler_appliance.core.effects import (
    Effect,
    Forget,
    Log,
    RemoveObject,
    Send,
    SendChunk,
    SpillObject,
    Stop,
    StoreChunk,
)
from scaler_appliance.core.scheduler_core import SchedulerCore
from scaler_appliance.core.state import Settings
from scaler_protocol import messages as m
from scaler_protocol.keys.allow_list import ANY_TENANT
from scaler_protocol.session.ids import SESSION_SHIFT

WORK_PER_CALL = (4000,) * 6 + (1, 4, 30)
TIMEOUTS_SECONDS = (4.0, 5.0, 12.0)
SPREAD_BYTES = (INLINE_BYTES, INLINE_BYTES, 1 << 20)
LIMITED_SHARE = 0.3  # of the seeds: their scheduler's memory is short at times
MEMORY_LIMIT_BYTES = 1 << 30
SMALLEST_FILE_BYTES = 1
MEMORY_USED = (0.0, 0.3, 0.72, 0.78, 0.85, 0.9)  # of the limit
DOWN_SECONDS = (0.0, 0.5, 4.0)
LONG_DOWN_SECONDS = 30.0
PREFETCH_SECONDS = (0.01, 0.15, 0.15, 0.6)
CHUNK_BYTES = (9_000, 30_000, 40_000)
BATCH_BYTES = 300
CLIENT_BYTES = (0, 400, 3000, 100_000, 1 << 28)
ANSWER_PAUSES_SECONDS = (0.0, 0.0, 0.001, 0.05)
HEARTBEATS_SECONDS = (0.3, 0.6, 2.0)  # if sessions can be resumed
SPILL_PAUSE_SECONDS = (0.3, 1.9)  # after a failure, in which nothing is to be spilled: what was decided before, is
TICKS_PER_CHECK, TICKS_PER_CALM_CHECK = 20, 60
TRANSFER_BYTES_PER_SECOND = (200e6, 200e6, 20e3)  # with the last one, tasks wait where their bytes are
LOOKING_SHARES = (0.25,)  # of the ticks of the phase with faults, after which a monitor looks, too
_FAULTLESS = (m.RefusalReason.NOT_GREETED, m.RefusalReason.SHUTTING_DOWN)


class SchedulerHost(Process):
    def __init__(self, world: World, network: Network, tasks: Dict[int, Task], tenants: Tenants) -> None:
        super().__init__(world)
        random = world.random
        self.tasks = tasks
        self._tenants = tenants
        self.network = network
        network.scheduler = self
        network.judge = LinkJudge()
        self.files: Dict[str, bytes] = {}  # by path; peers on the same host see them; they go with the scheduler
        self.is_up = False
        self.generation = 0
        self.last_session = 0
        self.storage_losses = 0
        self.worker_losses = 0  # workers that ended without having been asked to drain
        self.stopped = ""
        self._is_last = False
        self._bursts = random.choice(((0.0, 0.0, 0.001), (0.0, 0.005), (0.01, 0.1)))
        self._settings = Settings(
            client_timeout_seconds=random.choice(TIMEOUTS_SECONDS),
            worker_timeout_seconds=random.choice(TIMEOUTS_SECONDS),
            heartbeat_interval_seconds=2.0,
            protected=random.random() < 0.5,
            prefetch_seconds=world.choose("prefetch_seconds", PREFETCH_SECONDS),
            maximum_attempts=random.choice((1, 2, 4)),
            per_worker_queue_size=random.choice((1, 2, 4)) if world.uses("small_limits") else 1000,
            max_number_of_tasks_waiting=random.choice((0, 3, 20)) if world.uses("waiting_limits") else -1,
            object_memory_limit_bytes=random.choice((0, 0, 1, 200_000)),
            work_per_call=Random(f"work in parts: {world.plan.seed}").choice(WORK_PER_CALL),
            spread_bytes=Random(f"objects spread: {world.plan.seed}").choice(SPREAD_BYTES),
            requires_grants=tenants.are_there,
            tenants=tenants.settings,
        )
        if world.rates["resume"]:
            seconds = Random(f"heartbeats: {world.plan.seed}").choice(HEARTBEATS_SECONDS)
            self._settings = self._settings._replace(heartbeat_interval_seconds=seconds)
        rate = Random(f"transfers: {world.plan.seed}").choice(TRANSFER_BYTES_PER_SECOND)
        self._settings = self._settings._replace(transfer_bytes_per_second=rate)
        self._memory = Random(f"memory: {world.plan.seed}")
        if self._memory.random() < LIMITED_SHARE:
            self._settings = self._settings._replace(
                memory_limit_bytes=MEMORY_LIMIT_BYTES, smallest_file_bytes=SMALLEST_FILE_BYTES
            )
        self.maximum_attempts = self._settings.maximum_attempts
        self._has_waiting_limit = self._settings.max_number_of_tasks_waiting >= 0
        self._may_reject = self._has_waiting_limit or self._settings.memory_limit_bytes > 0
        self._has_monitor = world.uses("monitors")
        self._has_provisioner = world.rates["provisioner"] > 0.0
        self._looking_share = world.choose("looking_share", LOOKING_SHARES)
        self._pauses = Random(f"answers: {world.plan.seed}")
        self._start()
        world.every(1.0, self._on_second)

    def _start(self) -> None:
        self.generation += 1
        self.directory = f"/shared/{self.generation}"
        random = self.world.random
        settings = self._settings._replace(
            client_tasks_in_flight=self.world.choose("client_tasks_in_flight", (0, 3, 40, 1 << 20)),
            client_bytes_in_flight=self.world.choose("client_bytes_in_flight", CLIENT_BYTES),
            maximum_message_bytes=ROOM_BYTES + BATCH_BYTES if self.world.uses("small_limits") else 1 << 29,
            chunk_bytes=random.choice(CHUNK_BYTES),
            last_session=self.last_session,
            object_directory=self.directory,
            object_directory_token=self.generation.to_bytes(16, "big"),
            scheduler_id=self.generation.to_bytes(16, "little"),
        )
        self.core = SchedulerCore(settings)
        self._links = ResumedSessions(self.world, self.network, self.generation)
        self._judge = PlacementJudge(
            settings.prefetch_seconds,
            settings.client_bytes_in_flight,
            settings.client_timeout_seconds,
            settings.worker_timeout_seconds,
            self._tenants.limits,
            is_shared_fairly=self._tenants.are_there and not self.world.rates["capabilities"],
            most_queued=settings.per_worker_queue_size,
            spread_bytes=settings.spread_bytes,
            paces_of=self._paces_of,
        )
        self._tenant_judge = TenantJudge(self._tenants.limits)
        self._answers: Deque[Union[Send, SendChunk]] = deque()  # parts of objects that wait for their turn
        self._spill_failed_at = -NEVER
        self.is_stopping = False  # because a client has asked for it
        self._on_disk: Set[int] = set()
        self._spills: Set[int] = set()
        self._receiving: Dict[int, bytearray] = {}
        self._ended_sessions: Set[int] = set()
        self._gone: List[bytes] = []
        self._is_tick_due = self._is_in_parts = False
        self._ticks = 0
        self._monitor = Monitor(self.world.plan.seed + self.generation, NAMES[0] if self._tenants.are_there else "")
        self._dialogues = WorkerDialogues(disks_may_be_full=bool(self.world.rates["worker_disk_full"]))
        self._releases = ReleaseJudge(self._dialogues.has_tasks)
        self.is_up = True

    def crash(self) -> None:
        """It is killed; another one takes its place, and knows nothing."""
        self.world.say("scheduler crashes")
        self._go()

    def _go(self) -> None:
        self.stopped = ""
        self.last_session = self.core.state.last_session
        self.is_up = False
        self.network.end_all()
        self.files = {}
        self.directory = ""
        is_long = self.world.fault("long_restart")
        self.world.after(LONG_DOWN_SECONDS if is_long else self.world.random.choice(DOWN_SECONDS), self._start)

    def has_directory(self, path: str) -> bool:
        """Whether the directory of a file is there: that of a dead scheduler is not."""
        return bool(self.directory) and path.startswith(self.directory + "/")

    def may_reject(self, tenant: str) -> bool:
        """Whether tasks of a tenant may be rejected."""
        limits = self._tenants.limits_of(tenant)
        return self._may_reject or (limits is not None and limits.maximum_waiting >= 0)

    def keeps_all_objects(self, tenant: str) -> bool:
        """Whether a tenant may have as many objects as it likes."""
        limits = self._tenants.limits_of(tenant)
        return limits is None or limits.maximum_object_bytes < 0

    def path(self, object_id: int) -> str:
        return f"{self.directory}/{object_id:016x}"

    # Input ----------------------------------------------------------------------------------------------------------

    def on_authenticated(self, name: bytes, peer: Peer) -> None:
        """A peer has connected."""
        if self._tenants.are_there:
            self._judge.on_authenticated(name, peer.key)
            self._tenant_judge.on_authenticated(name, peer.key, peer.name)
            self.core.on_authenticated(self.now, name, *peer.key, peer.name)

    def on_arrived(self, name: bytes, frames: Tuple[bytes, bytes]) -> None:
        if self.is_up:
            self._links.on_arrived(name, frames)

    def on_message(self, name: bytes, message: Any, payload: bytes) -> None:
        if self.is_up:
            core, now = self.core, self.now
            state, is_stopping = core.state, core.shutdown.has_begun
            gone = self._links.on_message(name, message, len(payload), name in state.sessions, is_stopping)
            if gone is not None:
                if gone in self.network.connections:
                    self.network.connections.pop(gone).close_by_scheduler()
                self.on_peer_gone(gone)
            if gone == name:
                return
            self._dialogues.on_received(now, name, message)
            if self._has_provisioner:
                self._releases.on_received(now, name, message)
            self._judge.on_received(now, name, message, payload)
            if self._tenants.are_there:
                self._tenant_judge.on_received(name, message)
            if isinstance(message, m.Task) and (self._has_waiting_limit or self._tenants.are_there):
                self._accept(name, message, payload)
            elif isinstance(message, m.ObjectInstruction) and self._tenants.are_there and not core.has_work:
                self._keep(name, message, payload)
            else:
                core.on_message(now, name, message, payload)
            self._decide_soon()

    def _accept(self, name: bytes, message: m.Task, payload: bytes) -> None:
        """No more tasks wait than may, however many come at once."""
        state = self.core.state
        client = state.sessions.get(name)
        limits = None if client is None else self._tenants.limits_of(client.tenant)
        is_limited = limits is not None and limits.maximum_waiting >= 0
        most = max(state.waiting(), self._settings.max_number_of_tasks_waiting + self._free_slots(ANY_TENANT))
        before = max(0, self._waiting_of(limits.name)) if limits is not None and is_limited else 0
        self.core.on_message(self.now, name, message, payload)
        if self._has_waiting_limit:
            assert state.waiting() <= most, f"{state.waiting()} tasks wait, and at most {most} may"
        if limits is not None and is_limited:
            most, waiting = limits.maximum_waiting + self._free_slots(limits.name), self._waiting_of(limits.name)
            assert waiting <= max(before, most), f"{waiting} tasks of {limits.name!r} wait, and at most {most} may"

    def _keep(self, name: bytes, message: m.ObjectInstruction, payload: bytes) -> None:
        """Of a client's objects no more are kept than its tenant may have, unless results made that more."""
        client = self.core.state.clients.get(getattr(self.core.state.sessions.get(name), "number", 0))
        limits = None if client is None else self._tenants.limits_of(client.tenant)
        if limits is not None and limits.maximum_object_bytes < 0:
            limits = None
        before = 0 if limits is None else self._kept_bytes(limits.name)
        self.core.on_message(self.now, name, message, payload)
        if limits is not None and not self.core.has_work:
            kept, most = self._kept_bytes(limits.name), max(before, limits.maximum_object_bytes)
            assert kept <= most, f"objects of {limits.name!r} have {kept} bytes, and {most} are the most"

    def _kept_bytes(self, tenant: str) -> int:
        records = self.core.state.objects.records()
        return sum(each.size for each in records if each.tenant == tenant and not each.is_over_quota)

    def _free_slots(self, tenant: str) -> int:
        """Of workers that serve a tenant."""
        workers = self.core.state.workers.values()
        serving = [each for each in workers if tenant == ANY_TENANT or each.tenant in (tenant, ANY_TENANT)]
        return sum(max(0, worker.slots - worker.assigned) for worker in serving)

    def _waiting_of(self, tenant: str) -> int:
        """How many tasks of a tenant have no outcome, and are at no worker."""
        state = self.core.state
        unfinished = sum(each.unfinished for each in state.clients.values() if each.tenant == tenant)
        workers = state.workers.values()
        dispatches = [each for worker in workers for each in worker.dispatches.values()]
        return unfinished - sum(each.open_count for each in dispatches if each.batch.tenant == tenant)

    def on_peer_gone(self, name: bytes) -> None:
        if self.is_up:
            self._links.on_gone(name)
            self._dialogues.on_peer_gone(name)
            self.core.on_peer_gone(self.now, name)
            self._tenant_judge.on_gone(name)
            self._decide_soon()

    def on_congestion(self, name: bytes, is_congested: bool) -> None:
        core = self.core

        def tell() -> None:
            if self.is_up and core is self.core:
                core.on_congestion(self.now, name, is_congested)
                self._judge.on_congestion(name, is_congested)
                self._decide_soon()

        self.after(0.0, tell)

    def shut_down(self) -> None:
        self._is_last = True
        self.core.shut_down(self.now, "the end")
        self._settle()

    def _decide_soon(self) -> None:
        if not self._is_tick_due:
            self._is_tick_due = True
            core = self.core

            def settle() -> None:
                if self.is_up and core is self.core:
                    self._settle()

            self.after(self.world.random.choice(self._bursts), settle)

    def _on_second(self) -> None:
        if self.is_up:
            self.do(self._on_timer)

    def _look(self) -> None:
        if self._has_monitor and not self.stopped:
            self._monitor.look(self.core, self.now)

    def _on_timer(self) -> None:
        if not self.is_up:
            return  # it was killed while it stood still
        if self._settings.memory_limit_bytes:
            used = 0.0 if self.world.is_calm else self._memory.choice(MEMORY_USED)
            self.core.on_memory_used(self.now, int(used * MEMORY_LIMIT_BYTES))
        self._settle()
        self._look()
        sessions, self._ended_sessions = self._ended_sessions, set()
        for path in list(self.files) if sessions else ():
            name = path.rpartition("/")[2]
            if path.startswith(self.directory + "/") and not name.startswith("new-"):
                object_id = int(name, 16)
                if object_id >> SESSION_SHIFT in sessions and self.core.state.objects.find(object_id) is None:
                    self._remove_file(object_id)

    def _paces_of(self, session: int) -> Dict[object, float]:
        """What is said of a worker to who asks for the state."""
        worker = self.core.state.workers.get(session)
        if worker is None:
            return {None: 1.0}
        if not worker.pace.exceptions:
            return {None: worker.pace.factor}
        exceptions = {
            each[0] if isinstance(each, tuple) else each: factor for each, factor in worker.pace.exceptions.items()
        }
        return {None: worker.pace.factor, **exceptions}

    # Output ---------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        self._is_tick_due = False
        if self.stopped:
            return
        core, now = self.core, self.now
        if core.has_work:
            self._judge.on_more_work(now, core.is_working_for)
        core.tick(now)
        self._ticks += 1
        if not self._ticks % (TICKS_PER_CALM_CHECK if self.world.is_calm else TICKS_PER_CHECK):
            core.state.check_invariants()
        effects = core.take_effects()
        while effects:
            for effect in effects:
                self._perform(effect)
            effects = core.take_effects()
        core.state.useless.clear()  # peers are not charged here
        self._dialogues.on_tick()
        self._tenant_judge.on_effects()
        has_more = core.has_work
        if has_more:
            self._is_in_parts = True
        else:
            self._tenant_judge.on_tick()
            self._judge.on_tick(now, is_of_parts=self._is_in_parts)
            self._is_in_parts = False
        if self._must_go():
            self.world.say("scheduler stops")
            self._go()
            return
        if has_more:  # other messages may arrive before it goes on
            self._decide_soon()
        if not self.world.is_calm and self._monitor.random.random() < self._looking_share:
            self._look()

    def _must_go(self) -> bool:
        """Whether a client has stopped it: then a peer starts another one."""
        return bool(self.stopped) and not self._is_last

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Send) and not isinstance(effect.message, m.ObjectResponse):
            self._send(effect.peer, effect.message, b"".join(effect.payload))
        elif isinstance(effect, (Send, SendChunk)):
            self._answers.append(effect)
            self.after(self._pauses.choice(ANSWER_PAUSES_SECONDS), self._send_answer)
        elif isinstance(effect, StoreChunk):
            self._store_chunk(effect)
        elif isinstance(effect, SpillObject):
            assert effect.object_id not in self._spills
            soonest, latest = SPILL_PAUSE_SECONDS
            is_soon = soonest < self.now - self._spill_failed_at < latest
            assert not is_soon, "spilling is tried again soon after it failed"
            self._spills.add(effect.object_id)
            core = self.core
            self.after(self.world.random.choice((0.0, 0.02, 1.0)), lambda: self._spill(core, effect.object_id))
        elif isinstance(effect, RemoveObject):
            self._remove_file(effect.object_id)
        elif isinstance(effect, Forget):
            self._ended_sessions.add(effect.session)
            self._links.on_forgotten(effect.peer)
            self._answers = deque([answer for answer in self._answers if answer.peer != effect.peer])
            self._dialogues.on_peer_gone(effect.peer)
            self._judge.on_forgotten(effect.peer)
            self._tenant_judge.on_forgotten(effect.peer)
            connection = self.network.connections.get(effect.peer)
            if connection is not None:
                connection.drop_unsent()
        elif isinstance(effect, Stop):
            assert not self.stopped, "the scheduler stops once"
            self.stopped = effect.reason
        else:
            assert isinstance(effect, Log)
            self.world.say("scheduler:", effect.text)
            self.worker_losses += effect.text.startswith("worker ") and " is gone: " in effect.text
            self.worker_losses -= effect.text.startswith("worker ") and effect.text.endswith(" is gone: it left")
            assert "broke the protocol" not in effect.text, effect.text

    def _send_answer(self) -> None:
        """It is the turn of a part of an object, of which other messages may have gone ahead."""
        if self._answers and self.is_up and not self.stopped:
            answer = self._answers.popleft()
            if isinstance(answer, Send):
                self._send(answer.peer, answer.message, b"".join(answer.payload))
            else:
                self._send_chunk(answer)

    def _send(self, name: bytes, message: Any, payload: bytes) -> None:
        if isinstance(message, m.Refusal):
            assert message.reason in _FAULTLESS, f"{name!r} is refused: {message.message}"
        elif isinstance(message, m.ClientShutdownResponse):
            self.is_stopping |= message.accepted
        elif isinstance(message, m.Task):
            offset = 0
            for size in message.payload_sizes:
                self.tasks[key_of(split(payload[offset : offset + size])[1])].sent_count += 1
                offset += size
        worker: Any = self.core.state.sessions.get(name)
        self._dialogues.on_sent(self.now, name, message, len(payload), getattr(worker, "slots", 0))
        self._judge.on_sent(self.now, name, message, payload)
        if self._has_provisioner:
            workers = self.core.state.workers.values()
            self._releases.on_sent(self.now, name, message, {each.hello.unit: each.peer for each in workers})
        header = self._links.send(name, message, payload)
        if self._tenants.are_there:
            self._tenant_judge.on_sent(name, message, header, payload)

    # Files ----------------------------------------------------------------------------------------------------------

    def _send_chunk(self, effect: SendChunk) -> None:
        content = self._receiving.get(effect.object_id)
        found = self.files.get(self.path(effect.object_id)) if content is None else bytes(content)
        response = m.ObjectResponse(id=effect.object_id, offset=effect.offset, size=effect.size)
        chunk = b"" if found is None else found[effect.offset : effect.offset + effect.length]
        if found is None or len(chunk) < effect.length:
            response.status = m.ObjectResponseStatus.MISSING
            record = self.core.state.objects.find(effect.object_id)
            response.missing_reason = m.MissingReason.UNKNOWN if record is None else record.missing_reason
            chunk = b""
        self._send(effect.peer, response, chunk)

    def _store_chunk(self, effect: StoreChunk) -> None:
        object_id, now, core = effect.object_id, self.now, self.core
        if self.world.fault("storage_lost"):
            self.world.say("storage lost", hex(object_id))
            self.storage_losses += 1
            self._remove_file(object_id)
            core.on_object_unreadable(now, object_id, "no room", True)
            return
        if effect.offset and object_id not in self._receiving:
            core.on_object_unreadable(now, object_id, "its earlier parts could not be stored")
            return
        if not effect.offset and effect.on_disk:
            if self.world.fault("disk_full"):
                self._spill_failed_at = now
                core.on_object_spill_failed(now, object_id, "no space left")
            else:
                self._on_disk.add(object_id)
        elif not effect.offset and self.world.fault("memory_full"):
            self._on_disk.add(object_id)
            core.on_object_spilled(now, object_id)
        content = self._receiving.setdefault(object_id, bytearray())
        assert len(content) == effect.offset
        content += effect.chunk
        assert effect.is_last == (len(content) == effect.size)
        if effect.is_last:
            self.files[self.path(object_id)] = bytes(self._receiving.pop(object_id))

    def _spill(self, core: SchedulerCore, object_id: int) -> None:
        if core is not self.core or not self.is_up or object_id not in self._spills:
            return
        self._spills.discard(object_id)
        if self.world.fault("disk_full"):
            self._spill_failed_at = self.now
            core.on_object_spill_failed(self.now, object_id, "no space left")
        else:
            self._on_disk.add(object_id)
            core.on_object_spilled(self.now, object_id)
        self._decide_soon()

    def _remove_file(self, object_id: int) -> None:
        self.files.pop(self.path(object_id), None)
        self._receiving.pop(object_id, None)
        self._on_disk.discard(object_id)
        self._spills.discard(object_id)

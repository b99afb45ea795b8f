@0xb3d9c7e8a1f04602;
# How a peer joins, stays and leaves.

using Common = import "common.capnp";

struct Hello {
  # First message of a peer, on every new connection.
  major @0 :UInt16;  # protocol version: one major, a range of minors
  minorMin @1 :UInt16;
  minorMax @2 :UInt16;
  role @3 :Common.Role;
  implementation @4 :Common.Implementation;
  features @5 :List(Text);
  codecs @6 :List(Text);  # payload codecs understood, e.g. "cloudpickle"; none listed by a worker: any
  host @7 :Text;
  processId @8 :UInt32;
  name @9 :Text;  # for humans
  slots @10 :UInt32;  # worker: how many tasks run at once
  queueSize @11 :UInt32;  # worker: how many tasks it takes for each slot, including those that run; 0 counts as 1
  capabilities @12 :List(Common.Capability);  # worker
  previousSession @13 :UInt32;  # 0: none; of a peer that comes back, for the log, or to be resumed
  heartbeatIntervalMilliseconds @14 :UInt32;
  functions @15 :List(Text);  # worker: names of functions it serves; NAME* for all that begin with NAME; none listed: any
  remainingMilliseconds @16 :UInt64;  # worker: for how long from now on tasks may run here; 0: no end is known
  dataAddress @17 :Text;  # worker, client: where workers fetch objects from it, with a Ticket; empty: nowhere
  dataKey @18 :Data;  # worker, client: its public key (CURVE) there, and when it fetches itself; empty: it uses none
  unit @19 :Text;  # worker: the id of the unit that it belongs to, if a provisioner has started it; empty: none
  resumeToken @20 :Data;  # of the Welcome of previousSession, to resume that session; empty: a new one is wanted
  received @21 :UInt64;  # messages of that session, if it is to be resumed
  resumeAttempt @22 :UInt32;  # counts the Hellos that are to resume that session: the first one is 1
}

struct Welcome {
  # The scheduler's answer to a Hello it accepts.
  major @0 :UInt16;
  minor @1 :UInt16;  # the highest that both sides speak
  implementation @2 :Common.Implementation;
  schedulerId @3 :Data;  # 16 random bytes, new at each start of the scheduler
  session @4 :UInt32;  # object ids of this peer are session << 40 | number, number from 1
  features @5 :List(Text);
  limits @6 :Limits;
  heartbeatIntervalMilliseconds @7 :UInt32;
  timeoutMilliseconds @8 :UInt32;  # a peer silent for so long is lost
  objectDirectory @9 :Text;  # where the scheduler keeps objects on its own host
  objectDirectoryToken @10 :Data;  # content of the file `token` in that directory
  protected @11 :Bool;
  monitorAddress @12 :Text;
  resumeToken @13 :Data;  # with which the session can be resumed on another connection; empty: it cannot
  isResumed @14 :Bool;  # the session is the one that Hello names, and goes on
  received @15 :UInt64;  # messages of that session, if it is resumed
}

struct Limits {
  maximumMessageBytes @0 :UInt64;
  maximumObjectBytes @1 :UInt64;
  chunkBytes @2 :UInt32;  # of one ObjectResponse
  tasksInFlight @3 :UInt64;  # of one client, see TaskEcho; 0: no limit
  bytesInFlight @4 :UInt64;  # likewise
  inlineBytes @5 :UInt32;  # arguments and results of so many bytes and more should travel as objects
}

struct Refusal {
  # The answer to a peer that the scheduler does not serve; nothing follows it.
  reason @0 :RefusalReason;
  message @1 :Text;
  major @2 :UInt16;
  minorMin @3 :UInt16;
  minorMax @4 :UInt16;
  implementation @5 :Common.Implementation;
}

enum RefusalReason {
  versionMismatch @0;
  notGreeted @1;  # a message came before Hello: say Hello (again)
  roleNotServed @2;
  malformed @3;  # the peer sent bytes that are no message
  limitExceeded @4;
  notAllowed @5;
  shuttingDown @6;
  protocolViolation @7;  # well-formed, but not allowed in this state
  ticketUnknown @8;  # from a worker or client that serves a worker: it knows of no such Ticket
  ticketExpired @9;  # likewise: the Ticket was not used in time
  ticketForeign @10;  # likewise: the Ticket is for another object, key or connection
}

struct ProcessorStatus {
  processId @0 :UInt32;
  initialized @1 :Bool;
  hasTask @2 :Bool;
  suspended @3 :Bool;
  cpuPermille @4 :UInt32;
  residentBytes @5 :UInt64;
  queued @6 :UInt32;
  instance @7 :UInt64;  # the task that it runs, 0: none, or it began just now
  taskMicroseconds @8 :UInt64;  # for how long
}

struct Heartbeat {
  # Either side, at the interval of Welcome; the other answers with HeartbeatEcho.
  sequence @0 :UInt64;
  sharesObjectDirectory @1 :Bool;  # the peer read the token: objects need not travel
  cpuPermille @2 :UInt32;
  residentBytes @3 :UInt64;
  freeBytes @4 :UInt64;
  latencyMicroseconds @5 :UInt32;  # half the last round trip
  queued @6 :UInt32;
  processors @7 :List(ProcessorStatus);
  received @8 :UInt64;  # messages of this session, if it can be resumed
}

struct HeartbeatEcho {
  sequence @0 :UInt64;
  slots @1 :UInt32;  # how many tasks the whole cluster can run at once
  tasksWaiting @2 :UInt64;
  isWatched @3 :Bool;  # to a worker: a monitor is subscribed, fill the column runs of TaskResult
  received @4 :UInt64;  # messages of this session, if it can be resumed
}

struct DisconnectRequest {
  # The sender is leaving (a peer), or asks the peer to leave (the scheduler).
  reason @0 :DisconnectReason;
  message @1 :Text;
  drainCause @2 :DrainCause;  # of the reason draining
}

enum DisconnectReason {
  leaving @0;
  shutdown @1;
  draining @2;
}

enum DrainCause {
  # Why a worker drains, for people.
  unknown @0;
  signal @1;  # its program was asked to end
  operator @2;  # a client asked for it
  idle @3;  # it had no tasks for long
  lifetime @4;  # its end of life is near
  notice @5;  # its machine will be taken away
}

struct DisconnectResponse {}

struct ClientShutdown {
  # A client asks the whole cluster to stop.
}

struct ClientShutdownResponse {
  accepted @0 :Bool;
  message @1 :Text;
}

struct InfoRequest {
  # Client to scheduler: what does the cluster consist of, and how busy is it? Answered by Info.
  requestId @0 :UInt64;
  maximumWorkers @1 :UInt32;  # so many workers are listed at most
  maximumActors @2 :UInt32;  # and so many actors
}

struct WorkerInfo {
  session @0 :UInt32;
  name @1 :Text;
  host @2 :Text;
  processId @3 :UInt32;
  slots @4 :UInt32;
  tasks @5 :UInt32;  # that it has, running and queued
}

struct ActorInfo {
  id @0 :UInt64;  # of the object that holds its function
  name @1 :Text;  # of that object
  client @2 :UInt32;  # session of the one that made it
  worker @3 :UInt32;  # session of its worker; 0: it has none yet, or none any more
  workerName @4 :Text;
  callsWaiting @5 :UInt64;  # without an outcome, that are not at the worker
  callsRunning @6 :UInt64;  # at the worker, those queued there too
  callsFinished @7 :UInt64;  # total of those with an outcome
  callsFailed @8 :UInt64;  # of them, failed or lost
  state @9 :Common.ActorState;
  whyLost @10 :Text;
}

struct Info {
  # The cluster as the scheduler sees it. Counts are of all workers and actors, listed or not.
  requestId @0 :UInt64;
  implementation @1 :Common.Implementation;
  uptimeMilliseconds @2 :UInt64;
  clients @3 :UInt32;
  workerCount @4 :UInt32;
  slots @5 :UInt32;
  slotsFree @6 :UInt32;  # of workers that have fewer tasks than slots
  tasksWaiting @7 :UInt64;  # that no worker has
  tasksRunning @8 :UInt64;  # that workers have, those queued there too
  workers @9 :List(WorkerInfo);  # the first ones, in the order in which they joined
  actorCount @10 :UInt32;
  actors @11 :List(ActorInfo);  # the first ones, client by client, in the order in which each made them
}

struct WorkerShutdown {
  # A client asks that one worker leaves. A protected scheduler refuses to stop it at once. Answered by
  # WorkerShutdownResponse.
  requestId @0 :UInt64;
  session @1 :UInt32;  # of the worker; 0: `name` names it
  isDraining @2 :Bool;  # it finishes what it runs and gives the rest back; otherwise it stops at once
  name @3 :Text;  # as in its Hello
}

struct WorkerShutdownResponse {
  requestId @0 :UInt64;
  accepted @1 :Bool;  # the worker has been asked
  message @2 :Text;  # why not
}

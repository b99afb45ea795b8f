@0x9a6c8e1d4f730b06;
# What the scheduler publishes for monitors. Frame 0 is the topic, `status` or `tasks`, frame 1 the Message: a
# SchedulerStatus or TaskRuns.
#
# A SchedulerStatus tells the figures of the scheduler itself, and of everything else what changed since the one before;
# in a snapshot, all there is. Entries are whole: an entry replaces what was known under its number. Totals count since
# the scheduler, the session or whatever the entry is about began.

using Columns = import "columns.capnp";
using Common = import "common.capnp";

struct Count {
  name @0 :Text;
  value @1 :UInt64;
}

struct SchedulerStatus {
  schedulerId @0 :Data;
  sequence @1 :UInt64;  # one more than that of the publication before, on this topic
  isSnapshot @2 :Bool;  # forget what you knew: this is all
  unixMicroseconds @3 :UInt64;  # the scheduler's clock, now
  startedUnixMicroseconds @4 :UInt64;  # and when the scheduler started
  implementation @5 :Common.Implementation;
  address @6 :Text;  # where clients and workers connect
  host @7 :Text;
  processId @8 :UInt32;
  isProtected @9 :Bool;  # refuses ClientShutdown, and WorkerShutdown unless the worker is to drain
  cpuPermille @10 :UInt32;
  residentBytes @11 :UInt64;
  statusMicroseconds @12 :UInt64;  # of processor time that publishing took since the scheduler started
  objects @13 :UInt64;
  objectBytes @14 :UInt64;
  objectBytesOnDisk @15 :UInt64;  # of them
  slots @16 :UInt64;  # of all workers
  tasks @17 :List(Count);  # unassigned, running: now; success, failed, canceled, lost, ...: totals
  sent @18 :List(Count);  # totals of messages, by name
  received @19 :List(Count);
  workers @20 :WorkerColumns;
  processors @21 :ProcessorColumns;
  clients @22 :ClientColumns;
  functions @23 :FunctionColumns;
  graphs @24 :GraphColumns;
  largeObjects @25 :ObjectColumns;
  newWorkers @26 :List(WorkerIdentity);  # names of what has entries in the columns for the first time
  newClients @27 :List(ClientIdentity);
  newFunctions @28 :List(FunctionIdentity);
  newObjects @29 :List(ObjectIdentity);
  workersGone @30 :List(UInt32);  # these have no entry any more; what they were is not repeated
  clientsGone @31 :List(UInt32);
  functionsGone @32 :List(UInt32);
  graphsGone @33 :List(UInt64);
  objectsGone @34 :List(UInt64);
  waitingReasons @35 :List(Text);  # why tasks wait that cannot run, as clients are told; all that hold now
  isInsecure @36 :Bool;  # serves peers over the network that prove no key
  demands @37 :List(Common.SlotDemand);  # all that there are now, the most wanted first
  unitNotes @38 :List(Text);  # which units are to come, and what provisioners note of pools; all that hold now
  actors @39 :ActorColumns;
  newActors @40 :List(ActorIdentity);
  actorsGone @41 :List(UInt64);
  lostActors @42 :List(LostActor);  # why, of those among `actors` that are lost
  pools @43 :List(PoolDemand);  # of all provisioners; all that there are now
}

struct PoolDemand {
  # What tasks could use of a pool that a provisioner has named, beyond workers that are no provisioner's units.
  pool @0 :Text;
  slotsWanted @1 :UInt32;  # by tasks, those that there are included; at most what its maximum of units has
  unitsWanted @2 :UInt32;  # that have so many slots for these tasks
  units @3 :UInt32;  # that there are, or that are to come
}

struct WorkerIdentity {
  session @0 :UInt32;
  name @1 :Text;
  host @2 :Text;
  processId @3 :UInt32;
  slots @4 :UInt32;
  implementation @5 :Common.Implementation;
  capabilities @6 :List(Common.Capability);
}

struct WorkerColumns $Columns.entries("sessions") $Columns.complete {
  sessions @0 :List(UInt32);
  tasks @1 :List(UInt32);  # that are at the worker
  queued @2 :List(UInt32);  # of them, in its own queue, by its last heartbeat
  sent @3 :List(UInt64);  # total of tasks sent to it
  finished @4 :List(UInt64);  # total of outcomes it reported
  failed @5 :List(UInt64);  # of them, failed or lost
  cpuPermille @6 :List(UInt32);  # of the agent, by its last heartbeat
  residentBytes @7 :List(UInt64);
  freeBytes @8 :List(UInt64);  # memory that its host has left
  latencyMicroseconds @9 :List(UInt32);
  states @10 :List(UInt8);  # bits: 1 congested, 2 leaving; the next three: DrainCause
  processors @11 :List(UInt32);  # how many it has reported; 0: forget those that it had
}

struct ProcessorColumns $Columns.entries("workers") $Columns.complete {
  # Those of workers of which a heartbeat came. The processors of a worker are told together; they replace all that
  # were known of that worker.
  workers @0 :List(UInt32);
  processIds @1 :List(UInt32);
  states @2 :List(UInt8);  # bits: 1 initialized, 2 has a task, 4 suspended
  cpuPermille @3 :List(UInt32);
  residentBytes @4 :List(UInt64);
  queued @5 :List(UInt32);
  taskClients @6 :List(UInt32);  # the task that it has run for longest: session of its client, 0: none or not known
  taskIds @7 :List(UInt64);  # its id at the client
  taskFunctions @8 :List(UInt32);
  taskMicroseconds @9 :List(UInt64);  # for how long
}

struct ClientIdentity {
  session @0 :UInt32;
  name @1 :Text;
  host @2 :Text;
  processId @3 :UInt32;
  implementation @4 :Common.Implementation;
}

struct ClientColumns $Columns.entries("sessions") $Columns.complete {
  sessions @0 :List(UInt32);
  tasks @1 :List(UInt64);  # without an outcome
  finished @2 :List(UInt64);  # total
  failed @3 :List(UInt64);  # of them, failed or lost
  canceled @4 :List(UInt64);  # of them
  bytesInFlight @5 :List(UInt64);
  objects @6 :List(UInt64);  # that it holds
  objectBytes @7 :List(UInt64);
}

struct FunctionIdentity {
  number @0 :UInt32;  # the scheduler's; never used again while it lives
  name @1 :Text;
  client @2 :UInt32;  # session; 0: a function addressed by name
}

struct FunctionColumns $Columns.entries("numbers") $Columns.complete {
  numbers @0 :List(UInt32);
  finished @1 :List(UInt64);  # total
  failed @2 :List(UInt64);  # of them
  busyMicroseconds @3 :List(UInt64);  # total
  running @4 :List(UInt32);
  waiting @5 :List(UInt64);
  durationCounts @6 :List(UInt32) $Columns.counts("durationBuckets, durationTasks");
  # Durations of finished tasks: for each function in turn so many entries of the two that follow. Bucket b counts tasks
  # that took from 2^(b/4) to 2^((b+1)/4) microseconds; short tasks are counted by the mean of those reported together.
  durationBuckets @7 :List(UInt8);
  durationTasks @8 :List(UInt64);
}

struct GraphColumns $Columns.entries("numbers") $Columns.complete {
  # A graph is known by its client and its first task id.
  numbers @0 :List(UInt64);  # the scheduler's
  clients @1 :List(UInt32);
  firstTasks @2 :List(UInt64);
  nodes @3 :List(UInt32);
  waiting @4 :List(UInt32);  # for predecessors
  queued @5 :List(UInt32);
  running @6 :List(UInt32);
  succeeded @7 :List(UInt32);
  failed @8 :List(UInt32);  # or lost
  canceled @9 :List(UInt32);
  startedUnixMicroseconds @10 :List(UInt64);
}

struct ObjectIdentity {
  id @0 :UInt64;
  name @1 :Text;
  kind @2 :UInt8;  # ObjectKind
}

struct ObjectColumns $Columns.entries("ids") $Columns.complete {
  # Objects that are no small ones: those of 64 KiB and more.
  ids @0 :List(UInt64);
  owners @1 :List(UInt32);  # session
  sizes @2 :List(UInt64);
  states @3 :List(UInt8);  # bits: 1 on disk, 2 still arriving, 4 its owner has let go of it
}

struct ActorIdentity {
  id @0 :UInt64;  # of the object that holds its function
  name @1 :Text;  # of that object
  client @2 :UInt32;  # session of the one that made it
}

struct ActorColumns $Columns.entries("ids") $Columns.complete {
  ids @0 :List(UInt64);
  workers @1 :List(UInt32);  # session of its worker; 0: it has none yet, or none any more
  waiting @2 :List(UInt64);  # calls without an outcome that are not at the worker
  running @3 :List(UInt64);  # calls at the worker, those queued there too
  finished @4 :List(UInt64);  # total of calls with an outcome
  failed @5 :List(UInt64);  # of them, failed or lost
  states @6 :List(UInt8);  # ActorState
}

struct LostActor {
  id @0 :UInt64;
  reason @1 :Text;
}

struct TaskRuns $Columns.entries("endMicroseconds") $Columns.complete {
  # Which tasks ended, where and when: one entry for tasks that one processor ran one after the other, or reported
  # together. Under load not every run is told, see the last fields; SchedulerStatus counts all.
  schedulerId @0 :Data;
  sequence @1 :UInt64;
  unixMicroseconds @2 :UInt64;
  endMicroseconds @3 :List(UInt32);  # before `unixMicroseconds`
  workers @4 :List(UInt32);
  processors @5 :List(UInt32);  # process ids; 0: not known
  clients @6 :List(UInt32);
  functions @7 :List(UInt32);
  firstTasks @8 :List(UInt64);  # id at the client of the first; the others' need not follow on it
  counts @9 :List(UInt32);
  statuses @10 :List(UInt8);  # TaskStatus, of all of the run
  busyMicroseconds @11 :List(UInt64);  # of all together
  peakMemoryBytes @12 :List(UInt64);  # the most of any; 0: not measured
  attempts @13 :List(UInt16);
  failures @14 :List(FailedRun);  # why, for some of those that failed
  omittedRuns @15 :UInt64;  # that are not among these
  omittedTasks @16 :UInt64;
  oneWorkerOf @17 :UInt32;  # runs of one in so many workers are told, those whose session it divides
}

struct FailedRun {
  entry @0 :UInt32;  # of the columns
  failure @1 :Data;  # a Failure, as the client gets it; empty where that is too long
}

@0xd7f04b1c9a3e2608;
# What a scheduler and a provisioner tell each other. A provisioner is a client that starts and stops workers; what it
# starts at a time, such as a job of a batch system, a pod or a process, is a unit, and has one worker or several.

using Common = import "common.capnp";

struct Demand {
  # Scheduler to provisioner: what tasks could use now. It replaces the one before.
  demands @0 :List(Common.SlotDemand);  # the most wanted first
  units @1 :List(UnitUse);  # those of which workers are connected
  unitsSequence @2 :UInt64;  # of the last Units from this provisioner that it takes into account; 0: of none
}

struct UnitUse {
  # What the scheduler knows of a unit, by its workers.
  unit @0 :Text;
  slots @1 :UInt32;  # of all its workers
  isLeaving @2 :Bool;  # all of them drain
}

enum UnitState {
  pending @0;  # it was asked for
  starting @1;  # it has begun, and no worker of it is known to be connected
  running @2;  # a worker of it was connected
  stopping @3;  # it was asked to end
  failed @4;  # it did not come, or ended too early
}

struct Unit {
  # What a provisioner knows of a unit.
  unit @0 :Text;  # its id, as in the Hello of its workers; no other unit ever has it
  pool @1 :Text;  # of those that the provisioner keeps apart
  state @2 :UnitState;
  reason @3 :Text;  # of the state, for people, e.g. "Resources" of a job that waits
  lifetimeMilliseconds @4 :UInt64;  # for how long it stays from now on, or from its start; 0: no end is known
  slots @5 :UInt32;  # that its workers have, or will have
  capabilities @6 :List(Common.Capability);  # of each worker, or of the one that there will be
}

struct UnitPool {
  # Units that are alike, and that a provisioner may start: it keeps them apart from others.
  pool @0 :Text;
  slots @1 :UInt32;  # of each unit
  maximumUnits @2 :UInt32;
  capabilities @3 :List(Common.Capability);  # of each unit
  lifetimeMilliseconds @4 :UInt64;  # for which a task may run in a new unit; 0: no end is known
}

struct Units {
  # Provisioner to scheduler: all its units. It replaces the one before.
  units @0 :List(Unit);
  sequence @2 :UInt64;  # one more than that of the one before in the session, from 1
  notes @1 :List(Text);  # what people should know who wait for tasks, e.g. why a pool starts none
  pools @3 :List(UnitPool);  # those that it uses first come first
}

struct ReleaseRequest {
  # Provisioner to scheduler: choose some of these units, which can go. Answered by Release.
  requestId @0 :UInt64;
  units @1 :List(Text);  # those that may be chosen; of equals the first ones are
  count @2 :UInt32;  # so many at most
  idleMilliseconds @3 :UInt64;  # only those whose workers had no tasks for so long
  mayBeBusy @4 :Bool;  # if there are not enough of these, others, too
}

struct Release {
  # Scheduler to provisioner: the workers of these units drain now, and end by themselves.
  requestId @0 :UInt64;
  units @1 :List(Text);
}

@0x9a6c8e1d4f730b06;
# What the scheduler publishes for monitors, about once a second.

using Session = import "session.capnp";

struct Count {
  name @0 :Text;
  value @1 :UInt64;
}

struct WorkerStatus {
  session @0 :UInt32;
  name @1 :Text;
  host @2 :Text;
  processId @3 :UInt32;
  slots @4 :UInt32;
  tasks @5 :UInt64;
  heartbeat @6 :Session.Heartbeat;
}

struct SchedulerStatus {
  schedulerId @0 :Data;
  cpuPermille @1 :UInt32;
  residentBytes @2 :UInt64;
  objects @3 :UInt64;
  objectBytes @4 :UInt64;
  tasks @5 :List(Count);
  sent @6 :List(Count);
  received @7 :List(Count);
  workers @8 :List(WorkerStatus);
  clients @9 :UInt32;
}

@0xc1a5b0f6d2e84701;
# Types that several messages share. Ordinals are never reused or renumbered: a change that an older
# peer could misread gets a new field, a new union member, or a new major version.

enum Role {
  client @0;
  worker @1;
  scheduler @2;
  monitor @3;
}

struct Implementation {
  # Who is speaking; for log lines and error messages, never for deciding behaviour.
  name @0 :Text;
  version @1 :Text;
  language @2 :Text;  # "Python 3.11.7 (CPython)"
}

struct Capability {
  # A countable resource that a worker offers or a task needs, e.g. gpu = 2.
  name @0 :Text;
  amount @1 :Float64;
}

struct SlotDemand {
  # How many slots the tasks with the same needs could use now.
  capabilities @0 :List(Capability);  # that each of them needs
  timeRequestMilliseconds @1 :UInt64;  # for how long a worker must stay, rounded up; 0: any
  tasks @2 :UInt64;  # that could run now, and those that run
  tasksUnmeasured @3 :UInt64;  # of them, those of which it is not known how long they take
  workMicroseconds @4 :UInt64;  # that the others take together
  slotsWanted @5 :UInt32;  # for all of them, those that there are included
  slotsMissing @6 :UInt32;  # so many more than workers and units that start have
}

struct TaskOptions {
  # Options of every task in one batch.
  priority @0 :Int32;  # higher runs first
  capabilities @1 :List(Capability);
  retries @2 :UInt16;  # further attempts after a processor died of this task
  timeLimitMilliseconds @3 :UInt64;  # 0: none
  memoryLimitBytes @4 :UInt64;  # of resident memory of the process that runs the task; 0: none
  profiling @5 :Bool;  # fill the profile columns of TaskResult
  atMostOnce @6 :Bool;  # never run again once handed to a worker
  streamOutput @7 :Bool;  # send what the task prints as TaskLog
  actor @8 :Bool;  # its tasks are calls of the actor that the function's object holds: see scheduler.md
  timeRequestMilliseconds @9 :UInt64;  # for how long each may run: a worker must stay so long; 0: not known
}

enum ActorState {
  waiting @0;  # no worker has been sent a call of it
  alive @1;  # a worker has, and it is not lost as far as the scheduler knows
  lost @2;  # it has ended before it was closed, or could not be made
}

enum TaskStatus {
  success @0;
  failed @1;  # the function raised; the payload is a Failure
  cancelled @2;  # no payload
  lost @3;  # not run to an end, and not run again; the payload is a Failure
}

enum FailureKind {
  taskRaised @0;  # the user's function raised
  functionNotLoaded @1;  # the worker could not load the function
  argumentNotLoaded @2;  # the worker could not load the arguments
  resultNotSerializable @3;  # the function returned something that cannot be sent
  exceptionNotSerializable @4;  # the function raised something that cannot be sent
  processorDied @5;  # the process running the task ended
  workerLost @6;  # the worker left, and no attempt is left
  objectMissing @7;  # an object the task refers to does not exist (any more)
  timeLimit @8;
  memoryLimit @9;
  rejected @10;  # the scheduler did not accept the task
  codecUnknown @11;  # no worker understands the codec
  predecessorGone @12;  # the outcome of a task that this one needs left the scheduler before: submit it with the result
  actorLost @13;  # the actor whose call it is has ended, or never began
}

enum MissingReason {
  # Why an object cannot be had.
  unknown @0;  # it does not exist (any more), or another reason
  noRoom @1;  # who should have stored its bytes had no room for them
  makerLost @2;  # the worker that had made it, and had the only copy, is gone or has lost it
}

struct Failure {
  # Payload of a task that failed or was lost: readable in any language, with the exception itself
  # in the codec's own form for those who understand it.
  kind @0 :FailureKind;
  typeName @1 :Text;  # "builtins.ZeroDivisionError"
  message @2 :Text;
  traceback @3 :Text;
  codec @4 :Text;  # of `exception`; empty when there is none
  exception @5 :Data;
  worker @6 :Text;
  attempts @7 :UInt32;
  missingReason @8 :MissingReason;  # of objectMissing
}

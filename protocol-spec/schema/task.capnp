@0xd7f2a9b4c6e10803;
# Tasks travel in batches. A batch is a set of parallel columns, one entry a task, and one payload
# frame after the header with the tasks' payloads back to back, in order.
#
# Columns that a batch does not need are empty. All other columns have one entry a task; a batch
# whose columns disagree, or whose payload frame is not as long as the sum of its sizes, is malformed.
# Which columns belong together is said by annotations of columns.capnp.

using Columns = import "columns.capnp";
using Common = import "common.capnp";

struct Task $Columns.entries("ids") {
  # Client to scheduler: `ids` are the client's task ids, strictly ascending within a session.
  # Scheduler to worker: `ids` are instance ids, unique for the life of the scheduler.
  ids @0 :List(UInt64);
  payloadSizes @1 :List(UInt32) $Columns.payload;
  function @2 :UInt64;  # object id; 0: `functionName` names it
  functionName @3 :Text;
  codec @4 :Text;  # of every payload in the batch: cloudpickle, json, raw, ...; empty: any worker will do
  options @5 :Common.TaskOptions;
  dependencyCounts @6 :List(UInt16) $Columns.counts("dependencies");  # how many of `dependencies` each task has
  dependencies @7 :List(UInt64);  # object ids; payloads refer to them by position
  attempt @8 :UInt16;  # scheduler to worker: 1 for the first
  client @9 :UInt32;  # scheduler to worker: session of the client it runs for
  parentInstance @10 :UInt64;  # client to scheduler: 0, or the instance of the task that submits
  predecessorCounts @11 :List(UInt16) $Columns.counts("predecessors");
  # Client to scheduler: how many of `predecessors` each task has.
  predecessors @12 :List(UInt64);  # ids of earlier tasks, whose results the tasks need
}

struct TaskEcho {
  # Scheduler to client: how far the scheduler has read, and how much more it will take. In flight is
  # what the client has sent in Task messages of this session and the scheduler has not released. A
  # client submits while what is in flight is below both limits; bytes are those of payloads and of
  # objects of kind `arguments`. Sent occasionally, and always before a client that keeps to its
  # limits would have to stop for want of it.
  acceptedUpTo @0 :UInt64;  # every task id up to this one is accepted
  tasksInFlight @1 :UInt64;  # as in Limits, renewed
  bytesInFlight @2 :UInt64;
  tasksReleased @3 :UInt64;  # since the session began
  bytesReleased @4 :UInt64;
}

struct TaskResult $Columns.entries("ids") {
  # Worker to scheduler with instance ids; scheduler to client with the client's task ids.
  ids @0 :List(UInt64);
  statuses @1 :List(UInt8);  # TaskStatus; empty: all success
  payloadSizes @2 :List(UInt32) $Columns.payload;
  codec @3 :Text;
  objects @4 :List(UInt64);  # object id of a large result, 0 where the payload holds it; empty: all inline
  busyMicroseconds @5 :UInt64;  # time the batch kept processors busy
  durationsMicroseconds @6 :List(UInt64);  # these three with profiling only
  cpuMicroseconds @7 :List(UInt64);
  peakMemoryBytes @8 :List(UInt64);  # resident memory of the process at most, beyond what it had when the task began
  causes @9 :List(UInt64);
  # Scheduler to client, graphs only: 1 + the id of the node whose failure the entry passes on to a target
  # that needed it; 0: the outcome is the task's own.

  runs @10 :List(UInt64) $Columns.apart;
  # Worker to scheduler, while HeartbeatEcho.isWatched; otherwise empty. Three numbers a run: how many of the tasks, in
  # order, one processor ran one after the other; its process id, 0: none did; how many microseconds it was busy with them.
}

struct TaskCancel {
  ids @0 :List(UInt64);
  force @1 :Bool;  # stop it even when it runs
}

enum CancelOutcome {
  cancelled @0;  # terminal: no TaskResult follows
  running @1;  # started and not forced: its TaskResult follows
  notFound @2;  # its TaskResult went out before
}

struct TaskCancelConfirm $Columns.entries("ids") {
  ids @0 :List(UInt64);
  outcomes @1 :List(UInt8) $Columns.always;  # CancelOutcome
}

struct TaskLog {
  id @0 :UInt64;
  stream @1 :UInt8;  # 1: standard output, 2: standard error, 3: where the task was when a cancel stopped it, 4: a notice
  text @2 :Text;
}

struct ExplanationRequest {
  # Client to scheduler: what does this task wait for? Answered by Explanation.
  requestId @0 :UInt64;  # not 0
  taskId @1 :UInt64;
}

struct Explanation {
  # Scheduler to client: where a task is and what it waits for, for people. Unasked (requestId 0) it is
  # a warning, once a reason: tasks wait that cannot run, or wait although workers are idle.
  requestId @0 :UInt64;
  text @1 :Text;
}

struct GraphTask $Columns.entries("ids") {
  # A graph of tasks. Node i is described by entry i of the columns; its predecessors are
  # `predecessors[predecessorOffsets[i] : predecessorOffsets[i + 1]]`, node positions smaller than i.
  # `ids` are task ids as in Task. A node runs when all its predecessors have succeeded. When one of them
  # fails, is lost or cancelled, so is what depends on it; what no target needs any more is not run.
  # The client gets the outcomes of targets, in TaskResult; those that are cancelled because a node they
  # need was cancelled are in a TaskCancelConfirm that the client did not ask for.
  #
  # To a worker each node is a task. The payload of one that has predecessors begins with their results:
  # UInt32 4, UInt32 count, for each predecessor in the given order UInt32 size, then the results back to back,
  # then the node's own payload. A size of 0xFFFFFFFF says that the result is an object: these are the last
  # entries of the task's dependencies, in order.
  ids @0 :List(UInt64);
  payloadSizes @1 :List(UInt32) $Columns.payload;
  functions @2 :List(UInt64) $Columns.always;  # object ids
  predecessorOffsets @3 :List(UInt32) $Columns.apart;
  # One entry more than there are nodes; empty: no node has predecessors.
  predecessors @4 :List(UInt32) $Columns.apart;
  targets @5 :List(UInt32) $Columns.apart;  # node positions whose results the client wants
  codec @6 :Text;
  options @7 :Common.TaskOptions;
  dependencyCounts @8 :List(UInt16) $Columns.counts("dependencies");  # these two as in Task
  dependencies @9 :List(UInt64);
}

struct GraphTaskResult $Columns.entries("ids") {
  ids @0 :List(UInt64);
  statuses @1 :List(UInt8);
  payloadSizes @2 :List(UInt32) $Columns.payload;
  codec @3 :Text;
  objects @4 :List(UInt64);
}

struct BalanceRequest {
  # Scheduler to worker: give back up to `count` tasks that have not started.
  requestId @0 :UInt64;
  count @1 :UInt32;
}

struct BalanceResponse {
  requestId @0 :UInt64;
  ids @1 :List(UInt64);  # these instances ended here without having started
}

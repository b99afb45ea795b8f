@0xe4b8d1f3a7c20904;
# Objects: functions, large arguments, large results, whatever is sent once and used often.

using Columns = import "columns.capnp";
using Common = import "common.capnp";

enum ObjectKind {
  value @0;
  function @1;
  serializer @2;
  arguments @3;  # of one task; once its maker deletes it, which it does at once, it counts as a payload in flight
}

enum ObjectStorage {
  inline @0;  # content in the payload frame
  shared @1;  # content in the file named after the id (16 hexadecimal digits) in the object directory
  remote @2;  # content stays with the sender, which answers ObjectRequest for it
  kept @3;  # the same, from a worker or client that keeps the content until it is notified of the deletion
  held @4;  # to a worker: content is with other workers, or its client, of which a Ticket names one
}

enum ObjectAction {
  create @0;
  delete @1;
  clear @2;  # all objects of this peer; columns are empty
  spill @3;  # from the scheduler: the files of these shared objects of the peer are links to the disk now; a peer
             # that keeps hard links to the old files may replace them, too, to free memory; others ignore it
  hold @4;  # from a worker: it has all bytes of these objects, and keeps them until it is notified of the deletion
  drop @5;  # from a worker: it has lost the bytes of these objects, or does not go on to fetch them
}

struct ObjectInstruction $Columns.entries("ids") {
  # Create or delete objects; columns, one entry an object. The payload frame has the contents of
  # the inline ones back to back, in order.
  action @0 :ObjectAction;
  ids @1 :List(UInt64);
  sizes @2 :List(UInt64) $Columns.always;
  storages @3 :List(UInt8) $Columns.always;  # ObjectStorage
  kinds @4 :List(UInt8);  # ObjectKind
  names @5 :List(Text);  # for humans; may be empty
  codec @6 :Text;
}

struct ObjectRequest {
  # "Send me these bytes of that object." The receiver of the content keeps a few requests open and
  # no more, so that a large object never fills a connection.
  id @0 :UInt64;
  offset @1 :UInt64;
  length @2 :UInt32;
  ticket @3 :Data;  # to another worker, or a client: the secret of the Ticket for it
}

enum ObjectResponseStatus {
  ok @0;  # the payload frame holds the bytes
  missing @1;
}

struct ObjectResponse {
  id @0 :UInt64;
  offset @1 :UInt64;
  status @2 :ObjectResponseStatus;
  size @3 :UInt64;  # of the whole object
  missingReason @4 :Common.MissingReason;  # of the status missing
}

struct TicketRequest {
  # A worker asks the scheduler which worker or client it can fetch an object from. Answered by Ticket.
  id @0 :UInt64;
  failedHolder @1 :UInt32;  # session of the holder in the Ticket before, if the fetch from it failed; 0: none
}

struct Ticket {
  # From the scheduler, to both ends of a transfer: a worker may fetch an object from another one, or from a client.
  id @0 :UInt64;
  holder @1 :UInt32;  # session of the peer that has the bytes; 0: none, request them from the scheduler
  secret @2 :Data;  # 32 bytes that only the two ends and the scheduler know: ObjectRequest.ticket
  lifetimeMilliseconds @3 :UInt32;  # from now until the first ObjectRequest with it, at the latest
  address @4 :Text;  # to the fetcher: Hello.dataAddress of the holder
  key @5 :Data;  # Hello.dataKey of the other end
}

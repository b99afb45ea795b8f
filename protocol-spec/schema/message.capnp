@0xf0e3c2d5b6a90a05;
# Frame 0 of every message is one Message in Cap'n Proto's standard stream encoding (unpacked); the
# frame after it, if there is one, is the payload that the message describes.

using Session = import "session.capnp";
using Task = import "task.capnp";
using Object = import "object.capnp";
using Status = import "status.capnp";
using Provisioning = import "provisioning.capnp";

struct Message {
  union {
    hello @0 :Session.Hello;
    welcome @1 :Session.Welcome;
    refusal @2 :Session.Refusal;
    heartbeat @3 :Session.Heartbeat;
    heartbeatEcho @4 :Session.HeartbeatEcho;
    disconnectRequest @5 :Session.DisconnectRequest;
    disconnectResponse @6 :Session.DisconnectResponse;
    clientShutdown @7 :Session.ClientShutdown;
    clientShutdownResponse @8 :Session.ClientShutdownResponse;
    task @9 :Task.Task;
    taskEcho @10 :Task.TaskEcho;
    taskResult @11 :Task.TaskResult;
    taskCancel @12 :Task.TaskCancel;
    taskCancelConfirm @13 :Task.TaskCancelConfirm;
    taskLog @14 :Task.TaskLog;
    graphTask @15 :Task.GraphTask;
    graphTaskResult @16 :Task.GraphTaskResult;
    balanceRequest @17 :Task.BalanceRequest;
    balanceResponse @18 :Task.BalanceResponse;
    objectInstruction @19 :Object.ObjectInstruction;
    objectRequest @20 :Object.ObjectRequest;
    objectResponse @21 :Object.ObjectResponse;
    schedulerStatus @22 :Status.SchedulerStatus;
    explanationRequest @23 :Task.ExplanationRequest;
    explanation @24 :Task.Explanation;
    infoRequest @25 :Session.InfoRequest;
    info @26 :Session.Info;
    taskRuns @27 :Status.TaskRuns;
    workerShutdown @28 :Session.WorkerShutdown;
    workerShutdownResponse @29 :Session.WorkerShutdownResponse;
    ticketRequest @30 :Object.TicketRequest;
    ticket @31 :Object.Ticket;
    demand @32 :Provisioning.Demand;
    units @33 :Provisioning.Units;
    releaseRequest @34 :Provisioning.ReleaseRequest;
    release @35 :Provisioning.Release;
  }
}

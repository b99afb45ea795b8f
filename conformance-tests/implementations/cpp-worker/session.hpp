// A session with a scheduler, from the attempt to connect to its end: all that the protocol demands of a worker.
//
// Rules: one thread, which waits nowhere but in poll, alone touches a session; jobs run on others (jobs.hpp).
#pragma once

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <cstring>
#include <iostream>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <zmq.hpp>
#include <zmq_addon.hpp>

#include "jobs.hpp"
#include "message.capnp.h"

using namespace std::chrono_literals;

struct Keys {  // of CURVE, in Z85
  std::string own, secret, server;
};

struct Options {
  std::string address;                                            // of the scheduler
  std::string name = "cpp_worker-" + std::to_string(getpid());  // for people
  std::vector<std::string> capabilities;
  unsigned slots = std::max(1U, std::thread::hardware_concurrency());
  double patience_seconds = 60;  // how long to look for the scheduler
  std::optional<Keys> keys;      // none: the scheduler requires none
};

inline void log(const std::string& text) { std::cerr << "cpp_worker: " << text << std::endl; }
inline std::uint64_t or_else(std::uint64_t value, std::uint64_t otherwise) { return value == 0 ? otherwise : value; }

template <typename Column, typename Value>
void fill(Column column, const Value& value_of) {
  for (unsigned entry = 0; entry < column.size(); ++entry) column.set(entry, value_of(entry));
}

class Session {
 public:
  enum class End { left, refused, lost };

  // Begins to connect. Throws zmq::error_t for an address that is none.
  Session(const Options& options, const Functions& functions, Slots& slots, zmq::context_t& context)
      : options_(options), functions_(functions), slots_(slots), socket_(context, ZMQ_DEALER),
        monitor_(context, ZMQ_PAIR) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::sndhwm, 0);          // what the scheduler does not read yet waits here
    socket_.set(zmq::sockopt::reconnect_ivl, -1);  // SCL-SES-021: nothing of this may reach another session
    if (options.keys) {  // SCL-SEC-015
      socket_.set(zmq::sockopt::curve_serverkey, options.keys->server);
      socket_.set(zmq::sockopt::curve_publickey, options.keys->own);
      socket_.set(zmq::sockopt::curve_secretkey, options.keys->secret);
    }
    static int number = 0;
    const std::string name = "inproc://monitor-" + std::to_string(++number);
    zmq_socket_monitor(socket_, name.c_str(), ZMQ_EVENT_CLOSED | ZMQ_EVENT_DISCONNECTED);
    monitor_.connect(name);
    socket_.connect(options.address);
  }

  // Before the monitor is closed: libzmq would wait for ever to deliver an event that is not read.
  ~Session() { zmq_socket_monitor(socket_, nullptr, 0); }

  // Until it is over; `signals` is readable when the worker has to leave.
  End run(int signals) {
    say_hello();
    while (!end_) {
      zmq_pollitem_t items[] = {{nullptr, signals, static_cast<short>(is_leaving_ ? 0 : ZMQ_POLLIN), 0},
                                {nullptr, slots_.bell, ZMQ_POLLIN, 0},
                                {socket_, 0, ZMQ_POLLIN, 0},
                                {monitor_, 0, ZMQ_POLLIN, 0}};
      const auto left = std::min(deadline_, next_heartbeat_) - Clock::now();
      zmq_poll(items, std::size(items), std::max<long>(0, left / 1ms + 1));
      if (items[0].revents != 0) leave();
      // First what has come: it may tell why the connection has ended. But jobs that have ended get their turn.
      for (int count = 0; count < 64 && !end_ && receive(); ++count) settle();
      if (!end_) collect();
      if (!end_) keep_time(items[3].revents != 0);
    }
    slots_.abandon();  // SCL-WRK-028, SCL-WRK-029
    return is_leaving_ ? End::left : *end_;
  }

  bool was_welcome() const { return number_ != 0; }

 private:
  // An object of the scheduler's; it is fetched when a job needs it.
  struct Announced {
    std::uint64_t size;
    std::shared_ptr<std::string> content;  // what is here of it
    bool is_fetched = false;
  };

  void say_hello() {
    send([this](auto message) {
      auto hello = message.initHello();
      hello.setMajor(1);  // and of the minors only 0
      hello.setRole(Role::WORKER);
      hello.initImplementation().setName("cpp_worker");
      hello.setCodecs({"json", "raw"});
      auto function = functions_.begin();
      fill(hello.initFunctions(functions_.size()), [&](unsigned) { return (function++)->first; });
      hello.setName(options_.name);
      hello.setSlots(options_.slots);
      hello.setQueueSize(256);
      auto capabilities = hello.initCapabilities(options_.capabilities.size());
      for (unsigned entry = 0; entry < capabilities.size(); ++entry) {
        capabilities[entry].setName(options_.capabilities[entry]);
        capabilities[entry].setAmount(1);
      }
    });
  }

  void leave() {  // SCL-SES-019
    send([](auto message) { message.initDisconnectRequest(); });
    slots_.abandon();
    is_leaving_ = true;
    next_heartbeat_ = Clock::time_point::max();
    deadline_ = Clock::now() + 1s;
  }

  void say_farewell() {
    send([](auto message) { message.initDisconnectResponse(); });
    socket_.set(zmq::sockopt::linger, 1000);
    end_ = End::left;
  }

  void keep_time(bool is_disconnected) {
    const auto now = Clock::now();
    if (is_disconnected || now >= deadline_) {  // SCL-SES-016, SCL-SES-017
      end_ = End::lost;
    } else if (now >= next_heartbeat_) {
      next_heartbeat_ = now + heartbeat_interval_;
      send([this](auto message) {
        auto heartbeat = message.initHeartbeat();
        heartbeat.setSequence(++heartbeats_);
        if (is_watched_) name_running(heartbeat);
      });
    }
  }

  template <typename Fill>
  void send(const Fill& fill, std::string_view payload = {}) {
    capnp::MallocMessageBuilder builder;
    fill(builder.initRoot<Message>());
    const auto words = capnp::messageToFlatArray(builder);
    const auto last = zmq::send_flags::dontwait;  // what cannot be sent at once has lost its connection
    const auto first = payload.empty() ? last : last | zmq::send_flags::sndmore;
    const auto sent = socket_.send(zmq::buffer(words.begin(), words.asBytes().size()), first);
    if (sent && !payload.empty()) socket_.send(zmq::buffer(payload), last);
  }

  // Reads a message and handles it; false if there is none.
  bool receive() try {
    std::vector<zmq::message_t> frames;
    if (!zmq::recv_multipart(socket_, std::back_inserter(frames), zmq::recv_flags::dontwait)) return false;
    KJ_REQUIRE(frames.size() <= 2 && frames[0].size() % sizeof(capnp::word) == 0, "wrong frames");  // SCL-TRN-003
    // Copied, because a frame of libzmq need not begin at the address of a word.
    auto words = kj::heapArray<capnp::word>(frames[0].size() / sizeof(capnp::word));
    std::memcpy(words.begin(), frames[0].data(), words.asBytes().size());
    capnp::ReaderOptions options;
    options.traversalLimitInWords = 64 << 20;  // each reading of a column counts, and one may have 64 MiB
    capnp::FlatArrayMessageReader reader(words, options);
    handle(reader.getRoot<Message>(), frames.size() == 2 ? frames[1].to_string_view() : std::string_view());
    if (was_welcome() && !is_leaving_) deadline_ = Clock::now() + timeout_;
    return true;
  } catch (const kj::Exception& error) {  // SCL-SEC-010
    if (++faults_ <= 10) log(std::string("passing over what is no message: ") + error.getDescription().cStr());
    return true;
  }

  void handle(Message::Reader message, std::string_view payload) {
    if (message.isDisconnectRequest()) {
      is_draining_ = message.getDisconnectRequest().getReason() == DisconnectReason::DRAINING;
      if (!is_draining_) say_farewell();  // SCL-SES-018
    } else if (is_leaving_) {
      if (message.isDisconnectResponse()) end_ = End::left;
    } else if (message.isRefusal()) {
      log(std::string("refused: ") + message.getRefusal().getMessage().cStr());
      const auto reason = message.getRefusal().getReason();  // SCL-SES-008, SCL-SES-009, SCL-SES-023
      end_ = reason == RefusalReason::NOT_GREETED || reason == RefusalReason::SHUTTING_DOWN ? End::lost : End::refused;
    } else if (!was_welcome()) {
      if (message.isWelcome()) handle_welcome(message.getWelcome());
    } else if (message.isHeartbeat()) {  // SCL-SES-014
      const auto sequence = message.getHeartbeat().getSequence();
      send([&](auto answer) { answer.initHeartbeatEcho().setSequence(sequence); });
    } else if (message.isHeartbeatEcho()) {
      is_watched_ = message.getHeartbeatEcho().getIsWatched();
    } else if (message.isTask()) {
      handle_tasks(message.getTask(), payload);
    } else if (message.isTaskCancel()) {
      handle_cancel(message.getTaskCancel());
    } else if (message.isBalanceRequest()) {
      handle_balance(message.getBalanceRequest());
    } else if (message.isObjectInstruction()) {
      handle_announcement(message.getObjectInstruction(), payload);
    } else if (message.isObjectResponse()) {
      handle_piece(message.getObjectResponse(), payload);
    } else if (message.isObjectRequest()) {
      handle_request(message.getObjectRequest());
    }
  }

  void handle_welcome(Welcome::Reader welcome) {
    number_ = welcome.getSession();
    const auto limits = welcome.getLimits();
    // Half of what a message may have leaves room for its header.
    message_bytes_ = std::min<std::uint64_t>(or_else(limits.getMaximumMessageBytes() / 2, 4 << 20), 4 << 20);
    object_bytes_ = std::min(or_else(limits.getInlineBytes(), 64 << 10), message_bytes_);
    piece_bytes_ = or_else(limits.getChunkBytes(), 1 << 20);
    heartbeat_interval_ = or_else(welcome.getHeartbeatIntervalMilliseconds(), 1000) * 1ms;
    timeout_ = or_else(welcome.getTimeoutMilliseconds(), UINT32_MAX) * 1ms;
    next_heartbeat_ = Clock::now();
    keep_time(false);
    log("session " + std::to_string(number_) + " at " + options_.address);
  }

  void handle_tasks(Task::Reader task, std::string_view payload) {
    const auto ids = task.getIds(), dependencies = task.getDependencies();
    const auto sizes = task.getPayloadSizes();
    const auto counts = task.getDependencyCounts();
    const auto sum = [](const auto& column) { return std::accumulate(column.begin(), column.end(), std::uint64_t{0}); };
    if (sizes.size() != ids.size() || (counts.size() != 0 && counts.size() != ids.size()) ||
        sum(sizes) != payload.size() || sum(counts) != dependencies.size())
      return log("passing over tasks whose columns disagree");  // SCL-WRK-015

    const auto options = task.getOptions();
    const std::string name = task.getFunctionName();
    const auto function = functions_.find(name);
    const bool is_served = task.getFunction() == 0 && function != functions_.end();
    const auto batch = std::make_shared<const Batch>(
        Batch{name, task.getCodec(), options_.name, is_served ? &function->second : nullptr, task.getAttempt(),
              options.getTimeLimitMilliseconds(), options.getProfiling()});
    for (unsigned entry = 0, dependency = 0; entry < ids.size(); ++entry) {
      const auto job = std::make_shared<Job>();
      job->id = ids[entry];
      job->batch = batch;
      job->turn = {-std::int64_t{options.getPriority()}, ++arrivals_};  // SCL-WRK-004
      const auto argument = payload.substr(0, sizes[entry]);
      payload.remove_prefix(argument.size());
      const unsigned needed = counts.size() == 0 ? 0 : counts[entry];
      if (argument.empty() && needed != 0) {  // SCL-COD-006
        job->arguments_object = dependencies[dependency];
      } else {
        job->arguments = std::make_shared<const std::string>(argument);
      }
      dependency += needed;
      if (held_.emplace(job->id, job).second) unsettled_.push_back(job);
    }
  }

  // Has those jobs run whose arguments are here, and fails those that cannot have them.
  void settle() {
    std::vector<JobPointer> ready;
    for (const auto& job : std::exchange(unsettled_, {})) {
      if (job->is_cancelled) continue;
      if (!job->arguments) {
        const auto found = announced_.find(job->arguments_object);
        if (found == announced_.end()) {  // SCL-WRK-014
          const auto reason = reasons_.find(job->arguments_object);  // SCL-OBJ-020
          const auto why = reason == reasons_.end() ? MissingReason::UNKNOWN : reason->second;
          job->fail({FailureKind::OBJECT_MISSING, "its arguments are not there (any more)", {}, why});
          report(job);
          continue;
        }
        auto& [size, content, is_fetched] = found->second;
        if (content->size() == size) job->arguments = content;
        else if (!std::exchange(is_fetched, true)) request(found->first, size, 0);
      }
      (job->arguments ? ready : unsettled_).push_back(job);
    }
    slots_.add(ready);
  }

  void handle_announcement(ObjectInstruction::Reader instruction, std::string_view payload) {
    const auto ids = instruction.getIds(), sizes = instruction.getSizes();
    const auto storages = instruction.getStorages();
    if (instruction.getAction() == ObjectAction::DELETE)  // SCL-OBJ-018
      for (const auto id : ids) announced_.erase(id), reasons_.erase(id);
    if (instruction.getAction() == ObjectAction::CLEAR) announced_.clear(), reasons_.clear();
    if (instruction.getAction() != ObjectAction::CREATE) return;  // SCL-OBJ-016
    for (unsigned entry = 0; entry < std::min({ids.size(), sizes.size(), storages.size()}); ++entry) {
      const bool is_inline = storages[entry] == static_cast<std::uint8_t>(ObjectStorage::INLINE);
      const auto content = payload.substr(0, is_inline ? sizes[entry] : 0);
      payload.remove_prefix(content.size());
      announced_.emplace(ids[entry], Announced{sizes[entry], std::make_shared<std::string>(content)});
    }
  }

  // One at a time (SCL-OBJ-011 allows four): the next begins where the last answer ended, however long that was.
  void request(std::uint64_t id, std::uint64_t size, std::uint64_t offset) {
    send([&](auto message) {
      auto request = message.initObjectRequest();
      request.setId(id);
      request.setOffset(offset);
      request.setLength(static_cast<std::uint32_t>(std::min(piece_bytes_, size - offset)));
    });
  }

  void handle_piece(ObjectResponse::Reader response, std::string_view piece) {
    const auto found = announced_.find(response.getId());
    if (found == announced_.end()) return;
    auto& [size, content, is_fetched] = found->second;
    if (!is_fetched || response.getOffset() != content->size()) return;  // it was not asked for
    *content += piece.substr(0, size - content->size());
    if (response.getStatus() != ObjectResponseStatus::OK || piece.empty()) {
      reasons_[response.getId()] = response.getMissingReason();
      announced_.erase(found);
    } else if (content->size() < size) {
      request(found->first, size, content->size());
    }
  }

  // Makes an object of a job's result, and keeps the job until the scheduler has fetched it.
  void offer(const JobPointer& job) {
    job->object = number_ << 40 | ++objects_made_;  // SCL-OBJ-001
    offered_.emplace(job->object, job);
    send([&](auto message) {
      auto instruction = message.initObjectInstruction();
      instruction.setIds({job->object});
      instruction.setSizes({job->payload.size()});
      instruction.setStorages({static_cast<std::uint8_t>(ObjectStorage::REMOTE)});
      instruction.setCodec(job->batch->codec);
    });
  }

  void handle_request(ObjectRequest::Reader request) {
    const auto id = request.getId(), offset = request.getOffset();
    const JobPointer job = offered_.count(id) != 0 ? offered_[id] : nullptr;
    const std::string_view content = job ? job->payload : std::string_view();
    const bool is_there = job && offset <= content.size();
    const auto piece = is_there ? content.substr(offset, request.getLength()) : content.substr(0, 0);  // SCL-OBJ-009
    const auto fill_in = [&](auto message) {
      auto response = message.initObjectResponse();
      response.setId(id);
      response.setOffset(offset);
      response.setStatus(is_there ? ObjectResponseStatus::OK : ObjectResponseStatus::MISSING);
      response.setSize(content.size());
    };
    send(fill_in, piece);
    if (!is_there || offset + piece.size() < content.size()) return;
    // That was the last of it: the scheduler asks in order, and keeps what it has.
    offered_.erase(id);
    job->payload.clear();
    report(job);
  }

  void handle_cancel(TaskCancel::Reader cancel) {
    send_reports();  // what has ended is told first
    for (const auto id : cancel.getIds()) {
      const auto found = held_.find(id);
      if (found == held_.end()) {
        confirm(id, CancelOutcome::NOT_FOUND);
      } else if (const auto job = found->second; !job->arguments || slots_.withdraw(job)) {  // SCL-WRK-020
        confirm(id, CancelOutcome::CANCELLED);
        job->is_cancelled = true;
        held_.erase(found);
      } else if (job->object != 0 || (!cancel.getForce() && !job->is_cancelled)) {  // SCL-WRK-022
        confirm(id, CancelOutcome::RUNNING);
      } else {  // SCL-WRK-023: answered when it has ended
        job->is_cancelled = true;
        slots_.stop(job);
      }
    }
  }

  void confirm(std::uint64_t id, CancelOutcome outcome) {
    send([=](auto message) {
      auto confirmation = message.initTaskCancelConfirm();
      confirmation.setIds({id});
      confirmation.setOutcomes({static_cast<std::uint8_t>(outcome)});
    });
  }

  // SCL-WRK-033
  void name_running(Heartbeat::Builder heartbeat) {
    const auto jobs = slots_.running();
    const auto now = Clock::now();
    auto processors = heartbeat.initProcessors(jobs.size());
    unsigned entry = 0;
    for (const auto& [id, began] : jobs) {
      auto processor = processors[entry++];
      processor.setProcessId(getpid());
      processor.setHasTask(true);
      processor.setInstance(id);
      processor.setTaskMicroseconds((now - began) / 1us);
    }
  }

  void handle_balance(BalanceRequest::Reader request) {
    const auto jobs = slots_.withdraw_last(request.getCount());  // SCL-WRK-027
    for (const auto& job : jobs) held_.erase(job->id);
    send([&](auto message) {
      auto response = message.initBalanceResponse();
      response.setRequestId(request.getRequestId());
      fill(response.initIds(jobs.size()), [&](unsigned entry) { return jobs[entry]->id; });
    });
  }

  void collect() {
    for (const auto& job : slots_.collect()) {
      if (job->is_cancelled) {
        confirm(job->id, CancelOutcome::CANCELLED);
        held_.erase(job->id);
      } else if (job->status == TaskStatus::SUCCESS && job->payload.size() >= object_bytes_) {
        offer(job);  // SCL-OBJ-013: reported when it has been fetched
      } else {
        report(job);
      }
    }
    send_reports();
    if (is_draining_ && held_.empty()) say_farewell();  // SCL-SES-020
  }

  // In one message with others of the same codec; but short tasks and long ones apart, for the scheduler's averages.
  void report(const JobPointer& job) {
    held_.erase(job->id);
    const auto bytes = 100 + job->payload.size();  // those of the columns too
    if (report_bytes_ + bytes > message_bytes_) send_reports();
    report_bytes_ += bytes;
    reports_[{job->batch->codec, job->batch->is_profiled, job->microseconds > 10'000}].push_back(job);
  }

  void send_reports() {
    for (const auto& [kind, jobs] : std::exchange(reports_, {})) send_result(jobs);
    report_bytes_ = 0;
  }

  void send_result(const std::vector<JobPointer>& jobs) {
    const auto count = jobs.size();
    const auto each = [&](auto Job::*field) { return [&, field](unsigned entry) { return (*jobs[entry]).*field; }; };
    std::string payload;
    std::uint64_t busy_microseconds = 0;
    for (const auto& job : jobs) {
      payload += job->payload;
      busy_microseconds += job->microseconds;
    }
    const auto fill_in = [&](auto message) {
      auto result = message.initTaskResult();
      fill(result.initIds(count), each(&Job::id));
      fill(result.initStatuses(count), [&](unsigned entry) { return static_cast<std::uint8_t>(jobs[entry]->status); });
      fill(result.initPayloadSizes(count), [&](unsigned entry) { return jobs[entry]->payload.size(); });
      fill(result.initObjects(count), each(&Job::object));
      result.setCodec(valid_text(jobs[0]->batch->codec));
      result.setBusyMicroseconds(busy_microseconds);
      if (jobs[0]->batch->is_profiled) {
        fill(result.initDurationsMicroseconds(count), each(&Job::microseconds));
        fill(result.initCpuMicroseconds(count), each(&Job::cpu_microseconds));
        fill(result.initPeakMemoryBytes(count), each(&Job::peak_memory_bytes));
      }
      if (is_watched_)  // SCL-WRK-032: a run of one task each
        fill(result.initRuns(3 * count), [&](unsigned number) {
          const Job& job = *jobs[number / 3];
          return number % 3 == 0 ? 1 : number % 3 == 1 ? job.thread : job.microseconds;
        });
    };
    send(fill_in, payload);
  }

  const Options& options_;
  const Functions& functions_;
  Slots& slots_;
  zmq::socket_t socket_;
  zmq::socket_t monitor_;  // readable when the connection could not be made, or has ended
  std::optional<End> end_;
  std::uint64_t number_ = 0;  // of the session; 0 before the Welcome
  bool is_leaving_ = false, is_draining_ = false, is_watched_ = false;
  Clock::duration heartbeat_interval_{}, timeout_{};
  Clock::time_point next_heartbeat_ = Clock::time_point::max();
  Clock::time_point deadline_ = Clock::now() + 10s;  // by which something has to come
  std::uint64_t heartbeats_ = 0, arrivals_ = 0, objects_made_ = 0, faults_ = 0, report_bytes_ = 0;
  std::uint64_t message_bytes_ = 0;                     // about so many in one TaskResult
  std::uint64_t object_bytes_ = 0;                      // results from this size on become objects
  std::uint64_t piece_bytes_ = 0;                       // of an object, in one message
  std::unordered_map<std::uint64_t, JobPointer> held_;  // all that have no reported end
  std::vector<JobPointer> unsettled_;                   // of these, those without arguments
  std::map<std::tuple<std::string, bool, bool>, std::vector<JobPointer>> reports_;  // to be sent
  std::unordered_map<std::uint64_t, Announced> announced_;  // the scheduler's objects
  std::unordered_map<std::uint64_t, MissingReason> reasons_;  // why those are gone that it did not have
  std::unordered_map<std::uint64_t, JobPointer> offered_;   // by the objects that have their results
};

#include "session.hpp"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <exception>

namespace worker {

namespace {

constexpr std::uint16_t major_version = 1, minor_version = 0;
constexpr auto answer_to_hello = std::chrono::seconds(10);
constexpr auto answer_to_farewell = std::chrono::seconds(1);
constexpr auto longest_pause = std::chrono::milliseconds(2000);  // between attempts to connect
constexpr std::uint64_t long_task_microseconds = 10'000;         // reported apart from short ones
constexpr std::size_t report_bytes = 4 << 20, report_entries = 4096;
constexpr std::size_t longest_text_bytes = 16 << 20;
constexpr int messages_in_a_row = 64;
constexpr unsigned most_faults_told = 10;  // in the log

template <typename Item>
kj::ArrayPtr<const Item> column(const std::vector<Item>& items) {
  return kj::arrayPtr(items.data(), items.size());
}

// Text in a message has to be UTF-8, and that of an exception, or of a message that libcapnp has read, may be anything.
std::string valid_text(const std::string& text, std::size_t most_bytes = longest_text_bytes) {
  const auto written = Json(text.substr(0, most_bytes)).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(written).get<std::string>();
}

}  // namespace

Worker::Worker(const Options& options, const Functions& functions, void* context, int signals)
    : options_(options), functions_(functions), context_(context), signals_(signals), runner_(options.slots) {}

void Worker::log(const std::string& text) const {
  char time[32];
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::strftime(time, sizeof time, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &parts));
  std::fprintf(stderr, "%s %s: %s\n", time, options_.implementation.c_str(), text.c_str());
}

Exit Worker::run() {
  connect();
  while (!exit_) {
    zmq_pollitem_t items[4] = {{nullptr, signals_, ZMQ_POLLIN, 0}, {nullptr, runner_.descriptor(), ZMQ_POLLIN, 0}, {}, {}};
    int count = 2;
    if (connection_) {
      const short out = connection_->empty() ? 0 : ZMQ_POLLOUT;
      items[count++] = {connection_->socket(), 0, static_cast<short>(ZMQ_POLLIN | out), 0};
      items[count++] = {connection_->monitor(), 0, ZMQ_POLLIN, 0};
    }
    zmq_poll(items, count, milliseconds_to_next_duty());

    signalfd_siginfo signal;
    if (items[0].revents != 0 && read(signals_, &signal, sizeof signal) > 0) leave();
    if (connection_) {
      connection_->flush();
      receive();
      if (!exit_) report_events();
      // What came before the end was read above, but for a flood of it, which is of no use any more.
      if (!exit_ && connection_ && connection_->ended()) disconnect("the connection has ended");
    } else {
      runner_.collect();
    }
    if (!exit_) keep_time();
  }
  if (connection_) {
    connection_->flush();
    connection_->linger(static_cast<int>(std::chrono::milliseconds(answer_to_farewell).count()));
    connection_.reset();
  }
  if (!runner_.close(std::chrono::seconds(2))) {
    log("a function does not end when it is asked to; ending without it");
    std::_Exit(static_cast<int>(*exit_));
  }
  return *exit_;
}

// Connecting, and what happens by time.

void Worker::connect() {
  connection_ = std::make_unique<Connection>(context_, options_.address);
  say_hello();
}

void Worker::disconnect(const std::string& why) {
  if (leaving_) {
    exit_ = Exit::left;
    return;
  }
  log(why + "; coming back");
  end_session();
  greeted_at_.reset();
  connection_.reset();
  const auto pause = std::chrono::milliseconds(50) * (1U << std::min(failed_attempts_++, 6U));
  connect_at_ = Clock::now() + std::min<Clock::duration>(pause, longest_pause);
}

void Worker::say_hello() {
  greeted_at_.reset();
  connection_->send([this](Message::Builder message) {
    auto hello = message.initHello();
    hello.setMajor(major_version);
    hello.setMinorMin(minor_version);
    hello.setMinorMax(minor_version);
    hello.setRole(Role::WORKER);
    auto implementation = hello.initImplementation();
    implementation.setName(options_.implementation);
    implementation.setVersion(options_.version);
    implementation.setLanguage("C++17");
    auto codecs = hello.initCodecs(2);
    codecs.set(0, "json");
    codecs.set(1, "raw");
    auto served = hello.initFunctions(static_cast<unsigned>(functions_.size()));
    unsigned position = 0;
    for (const auto& [name, function] : functions_) served.set(position++, name);
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    hello.setHost(valid_text(host));
    hello.setProcessId(static_cast<std::uint32_t>(getpid()));
    hello.setName(options_.name);
    hello.setSlots(options_.slots);
    hello.setQueueSize(options_.queue_size);
    auto capabilities = hello.initCapabilities(static_cast<unsigned>(options_.capabilities.size()));
    for (unsigned i = 0; i < options_.capabilities.size(); ++i) {
      capabilities[i].setName(options_.capabilities[i].first);
      capabilities[i].setAmount(options_.capabilities[i].second);
    }
    hello.setPreviousSession(previous_session_);
  });
}

void Worker::end_session() {
  if (!session_) return;
  runner_.abandon();
  reports_.clear();
  session_.reset();
  apart_since_ = Clock::now();
}

void Worker::leave() {
  if (leaving_ || !connection_ || (!session_ && !greeted_at_)) {
    exit_ = Exit::left;
    return;
  }
  log("leaving");
  report_events();
  connection_->send([](Message::Builder message) {
    message.initDisconnectRequest().setReason(DisconnectReason::LEAVING);
  });
  end_session();
  leaving_ = true;
  leave_by_ = Clock::now() + answer_to_farewell;
}

// Leaves as the scheduler has asked.
void Worker::go() {
  connection_->send([](Message::Builder message) { message.initDisconnectResponse(); });
  end_session();
  exit_ = Exit::left;
}

long Worker::milliseconds_to_next_duty() const {
  const auto now = Clock::now();
  auto next = now + std::chrono::hours(1);
  if (leaving_) next = std::min(next, leave_by_);
  if (!connection_) next = std::min(next, connect_at_);
  if (session_) {
    next = std::min({next, session_->next_heartbeat, last_heard_ + session_->timeout});
  } else {
    // Also notices that libzmq took the Hello.
    next = std::min(next, now + std::chrono::milliseconds(500));
  }
  return std::max<long>(0, std::chrono::duration_cast<std::chrono::milliseconds>(next - now).count() + 1);
}

void Worker::keep_time() {
  const auto now = Clock::now();
  if (leaving_) {
    if (now >= leave_by_) exit_ = Exit::left;
    return;
  }
  if (session_) {
    if (now >= last_heard_ + session_->timeout) return disconnect("the scheduler is silent");
    if (now >= session_->next_heartbeat) send_heartbeat();
    return;
  }
  if (std::chrono::duration<double>(now - apart_since_).count() >= options_.patience_seconds) {
    log("no scheduler at " + options_.address + " for " + std::to_string(options_.patience_seconds) + " seconds");
    exit_ = Exit::unreachable;
  } else if (!connection_) {
    if (now >= connect_at_) connect();
  } else if (!greeted_at_) {
    if (connection_->empty()) greeted_at_ = now;
  } else if (now >= *greeted_at_ + answer_to_hello) {
    disconnect("no answer to Hello");
  }
}

void Worker::send_heartbeat() {
  session_->next_heartbeat = Clock::now() + session_->heartbeat_interval;
  connection_->send([this](Message::Builder message) {
    auto heartbeat = message.initHeartbeat();
    heartbeat.setSequence(++session_->heartbeats);
    heartbeat.setSharesObjectDirectory(session_->objects->shares());
    heartbeat.setQueued(static_cast<std::uint32_t>(runner_.queued()));
  });
}

// What comes.

void Worker::receive() {
  for (int count = 0; count < messages_in_a_row && connection_ && !exit_; ++count) {
    auto received = connection_->receive();
    if (!received) return;
    last_heard_ = Clock::now();
    try {
      // The default limit counts each reading of a column, and a header may have 64 MiB.
      capnp::ReaderOptions reading;
      reading.traversalLimitInWords = 64 << 20;
      capnp::FlatArrayMessageReader reader(received->header, reading);
      handle(reader.getRoot<Message>(), received->payload);
    } catch (const kj::Exception& error) {
      if (++faults_ <= most_faults_told)
        log(std::string("passing over what is no message: ") + error.getDescription().cStr());
    }
  }
}

void Worker::handle(Message::Reader message, const Bytes& payload) {
  switch (message.which()) {
    case Message::WELCOME:
      return handle_welcome(message.getWelcome());
    case Message::REFUSAL:
      return handle_refusal(message.getRefusal());
    case Message::DISCONNECT_RESPONSE:
      if (leaving_) exit_ = Exit::left;
      return;
    case Message::DISCONNECT_REQUEST:
      return handle_disconnect(message.getDisconnectRequest());
    default:
      break;
  }
  if (!session_) return;
  switch (message.which()) {
    case Message::HEARTBEAT: {
      const auto sequence = message.getHeartbeat().getSequence();
      connection_->send([sequence](Message::Builder answer) { answer.initHeartbeatEcho().setSequence(sequence); });
      return;
    }
    case Message::HEARTBEAT_ECHO:
      send_reports();  // the tasks of one report all have a run, or none has
      session_->watched = message.getHeartbeatEcho().getIsWatched();
      return;
    case Message::TASK:
      return handle_task(message.getTask(), payload);
    case Message::TASK_CANCEL:
      return handle_cancel(message.getTaskCancel());
    case Message::BALANCE_REQUEST:
      return handle_balance(message.getBalanceRequest());
    case Message::OBJECT_INSTRUCTION:
      return session_->objects->instruct(message.getObjectInstruction(), payload);
    case Message::OBJECT_REQUEST:
      return session_->objects->answer(message.getObjectRequest());
    case Message::OBJECT_RESPONSE:
      return session_->objects->take(message.getObjectResponse(), payload);
    default:
      return;  // a message of another role or of a newer version
  }
}

void Worker::handle_welcome(Welcome::Reader welcome) {
  if (session_ || leaving_) return;
  greeted_at_.reset();
  failed_attempts_ = 0;
  previous_session_ = welcome.getSession();
  Session& session = session_.emplace();
  session.number = welcome.getSession();
  // Half of what a message may have leaves room for its header.
  const auto limits = welcome.getLimits();
  const auto most = limits.getMaximumMessageBytes() == 0 ? report_bytes : limits.getMaximumMessageBytes() / 2;
  session.report_bytes = std::min<std::uint64_t>(report_bytes, most);
  session.inline_bytes = std::min<std::uint64_t>(limits.getInlineBytes() == 0 ? most : limits.getInlineBytes(), most);
  const auto or_else = [](std::uint32_t value, std::chrono::milliseconds otherwise) {
    return value == 0 ? otherwise : std::chrono::milliseconds(value);
  };
  session.heartbeat_interval = or_else(welcome.getHeartbeatIntervalMilliseconds(), std::chrono::seconds(1));
  session.timeout = or_else(welcome.getTimeoutMilliseconds(), std::chrono::hours(24 * 365));
  session.objects = std::make_unique<Objects>(
      *connection_, welcome, options_.share_directory,
      [this](std::uint64_t object, std::optional<Bytes> content) { object_arrived(object, std::move(content)); },
      [this](std::uint64_t object) { object_fetched(object); });
  log("session " + std::to_string(session.number) + " at " + options_.address +
      (session.objects->shares() ? ", sharing its object directory" : ""));
  send_heartbeat();
}

void Worker::handle_refusal(Refusal::Reader refusal) {
  if (leaving_) {
    if (refusal.getReason() != RefusalReason::NOT_GREETED) exit_ = Exit::left;
    return;
  }
  const std::string said = refusal.getMessage();
  switch (refusal.getReason()) {
    case RefusalReason::NOT_GREETED:
      if (!session_) return;  // it answers what was sent before Hello
      log("the scheduler has ended the session; coming back");
      end_session();
      return say_hello();
    case RefusalReason::SHUTTING_DOWN:
      return disconnect("the scheduler is shutting down");
    case RefusalReason::VERSION_MISMATCH:
      log("the scheduler speaks version " + std::to_string(refusal.getMajor()) + "." +
          std::to_string(refusal.getMinorMin()) + " to " + std::to_string(refusal.getMajor()) + "." +
          std::to_string(refusal.getMinorMax()) + " of the protocol, and this worker " + std::to_string(major_version) +
          "." + std::to_string(minor_version) + ": install a worker of the scheduler's version. It says: " + said);
      break;
    default:
      log("refused: " + said);
  }
  end_session();
  exit_ = Exit::refused;
}

void Worker::handle_disconnect(DisconnectRequest::Reader request) {
  if (request.getReason() == DisconnectReason::DRAINING) {
    if (session_) session_->draining = true;
    return report_events();
  }
  log(std::string("the scheduler asks to leave. ") + request.getMessage().cStr());
  go();
}

void Worker::handle_task(Task::Reader task, const Bytes& payload) {
  const auto ids = task.getIds(), dependencies = task.getDependencies();
  const auto sizes = task.getPayloadSizes();
  const auto counts = task.getDependencyCounts();
  std::uint64_t bytes = 0, needed = 0;
  for (const auto size : sizes) bytes += size;
  for (const auto count : counts) needed += count;
  if (sizes.size() != ids.size() || (counts.size() != 0 && counts.size() != ids.size()) ||
      bytes != payload.view.size() || needed != dependencies.size())
    return log("passing over tasks whose columns disagree");

  auto batch = std::make_shared<Batch>();
  if (task.getFunction() == 0) {
    batch->function_name = task.getFunctionName();
    const auto found = functions_.find(batch->function_name);
    if (found != functions_.end()) batch->function = &found->second;
  }
  batch->codec = task.getCodec();
  const auto options = task.getOptions();
  batch->priority = options.getPriority();
  batch->attempt = task.getAttempt();
  batch->time_limit_milliseconds = options.getTimeLimitMilliseconds();
  batch->profiling = options.getProfiling();
  batch->stream_output = options.getStreamOutput();

  std::vector<InstancePointer> ready;
  std::size_t offset = 0;
  unsigned dependency = 0;
  for (unsigned entry = 0; entry < ids.size(); ++entry) {
    auto instance = std::make_shared<Instance>();
    instance->id = ids[entry];
    instance->batch = batch;
    instance->arguments = {payload.owner, payload.view.substr(offset, sizes[entry])};
    offset += sizes[entry];
    const unsigned first = dependency, end = dependency + (counts.size() == 0 ? 0 : counts[entry]);
    dependency = end;
    if (!session_->held.emplace(instance->id, instance).second) continue;
    bool known = true;
    for (unsigned position = first; position < end; ++position)
      known = known && session_->objects->knows(dependencies[position]);
    if (!known) {
      lose(instance, "an object that it needs was not announced, or has been deleted");
    } else if (sizes[entry] != 0 || first == end) {
      ready.push_back(instance);
    } else {
      try {
        if (auto content = session_->objects->need(dependencies[first])) {
          instance->arguments = *content;
          ready.push_back(instance);
        } else {
          session_->waiting[dependencies[first]].push_back(instance);
        }
      } catch (const std::exception& error) {
        lose(instance, std::string("there is no room for its arguments: ") + error.what());
      }
    }
  }
  runner_.add(ready);
  send_reports();
}

void Worker::object_arrived(std::uint64_t object, std::optional<Bytes> content) {
  const auto found = session_->waiting.find(object);
  if (found == session_->waiting.end()) return;
  const auto instances = std::move(found->second);
  session_->waiting.erase(found);
  std::vector<InstancePointer> ready;
  for (const auto& instance : instances) {
    const auto held = session_->held.find(instance->id);
    if (held == session_->held.end() || held->second != instance) continue;  // cancelled meanwhile
    if (content) {
      instance->arguments = *content;
      ready.push_back(instance);
    } else {
      lose(instance, "its arguments were deleted, or cannot be fetched");
    }
  }
  runner_.add(ready);
  send_reports();
}

void Worker::handle_cancel(TaskCancel::Reader cancel) {
  report_events();  // what has finished is told first
  std::vector<std::pair<std::uint64_t, CancelOutcome>> answers;
  for (const auto id : cancel.getIds()) {
    const auto found = session_->held.find(id);
    if (found == session_->held.end()) {
      answers.emplace_back(id, CancelOutcome::NOT_FOUND);
      continue;
    }
    const InstancePointer instance = found->second;
    if (instance->cancelled) continue;  // it is answered together with the cancel before
    if (runner_.withdraw(*instance) || runner_.stage_of(*instance) == Stage::waiting) {
      session_->held.erase(found);
      answers.emplace_back(id, CancelOutcome::CANCELLED);
    } else if (cancel.getForce() && instance->batch->function != nullptr && instance->batch->function->stoppable &&
               runner_.stage_of(*instance) == Stage::running) {
      instance->cancelled = true;  // answered when it has ended
      runner_.stop(*instance);
    } else {
      answers.emplace_back(id, CancelOutcome::RUNNING);
    }
  }
  confirm(answers);
}

void Worker::handle_balance(BalanceRequest::Reader request) {
  std::vector<std::uint64_t> ids;
  // Those that wait for an object would start last of all.
  for (const auto& [object, instances] : session_->waiting)
    for (const auto& instance : instances)
      if (ids.size() < request.getCount() && session_->held.count(instance->id) != 0) ids.push_back(instance->id);
  const auto queued = runner_.give_back(request.getCount() - ids.size());
  ids.insert(ids.end(), queued.begin(), queued.end());
  for (const auto id : ids) session_->held.erase(id);
  connection_->send([&](Message::Builder message) {
    auto response = message.initBalanceResponse();
    response.setRequestId(request.getRequestId());
    response.setIds(column(ids));
  });
}

// What goes.

void Worker::report_events() {
  auto events = runner_.collect();
  if (!session_) return;
  std::vector<std::pair<std::uint64_t, CancelOutcome>> answers;
  for (auto& event : events) {
    const auto held = session_->held.find(event.instance->id);
    if (held == session_->held.end() || held->second != event.instance) continue;  // of an earlier session
    if (event.stream != 0) {
      connection_->send([&event](Message::Builder message) {
        auto output = message.initTaskLog();
        output.setId(event.instance->id);
        output.setStream(event.stream);
        output.setText(event.text);
      });
    } else if (event.instance->cancelled) {
      answers.emplace_back(event.instance->id, CancelOutcome::CANCELLED);
      session_->held.erase(held);
    } else if (const auto& result = event.outcome.result;
               event.outcome.status == TaskStatus::SUCCESS && result.view.size() >= session_->inline_bytes) {
      const auto made = session_->objects->make(result, event.instance->batch->codec);
      if (made.remote) {
        session_->fetched_later.emplace(made.id, std::move(event));
      } else {
        enter(event, made.id);
      }
    } else {
      enter(event, 0);
    }
  }
  send_reports();
  confirm(answers);
  if (session_->draining && session_->held.empty()) {
    log("drained");
    go();
  }
}

void Worker::object_fetched(std::uint64_t object) {
  const auto found = session_->fetched_later.find(object);
  if (found == session_->fetched_later.end()) return;
  const Event event = std::move(found->second);
  session_->fetched_later.erase(found);
  enter(event, object);
  send_reports();
}

void Worker::lose(const InstancePointer& instance, const std::string& message) {
  Event event;
  event.instance = instance;
  event.outcome.status = TaskStatus::LOST;
  event.outcome.kind = FailureKind::OBJECT_MISSING;
  event.outcome.message = message;
  enter(event, 0);
}

void Worker::enter(const Event& event, std::uint64_t object) {
  const Instance& instance = *event.instance;
  const Outcome& outcome = event.outcome;
  const ReportKey key{instance.batch->codec, instance.batch->profiling,
                      outcome.duration_microseconds >= long_task_microseconds};
  const std::string failure = outcome.status == TaskStatus::SUCCESS ? std::string() : failure_of(instance, outcome);
  const std::string_view payload = !failure.empty() ? failure : object == 0 ? outcome.result.view : std::string_view();
  if (auto& begun = reports_[key];
      begun.ids.size() >= report_entries || begun.payload.size() + payload.size() > session_->report_bytes) {
    if (!begun.ids.empty()) send_report(key, begun);
    begun = {};
  }
  Report& report = reports_[key];
  report.payload += payload;
  report.ids.push_back(instance.id);
  report.statuses.push_back(static_cast<std::uint8_t>(outcome.status));
  report.sizes.push_back(static_cast<std::uint32_t>(payload.size()));
  report.objects.push_back(object);
  report.busy_microseconds += outcome.duration_microseconds;
  // SCL-WRK-032
  if (session_->watched) report.runs.insert(report.runs.end(), {1, outcome.thread, outcome.duration_microseconds});
  if (instance.batch->profiling) {
    report.durations.push_back(outcome.duration_microseconds);
    report.cpu.push_back(outcome.cpu_microseconds);
    report.peaks.push_back(outcome.peak_bytes);
  }
  session_->held.erase(instance.id);
}

std::string Worker::failure_of(const Instance& instance, const Outcome& outcome) const {
  capnp::MallocMessageBuilder builder;
  auto failure = builder.initRoot<Failure>();
  failure.setKind(outcome.kind);
  failure.setTypeName(valid_text(outcome.type_name));
  failure.setMessage(valid_text(outcome.message, session_->report_bytes / 4));
  failure.setWorker(options_.name);
  failure.setAttempts(instance.batch->attempt);
  const auto words = capnp::messageToFlatArray(builder);
  const auto chars = words.asChars();
  return {chars.begin(), chars.size()};
}

void Worker::send_report(const ReportKey& key, Report& report) {
  connection_->send(
      [&](Message::Builder message) {
        auto result = message.initTaskResult();
        result.setIds(column(report.ids));
        result.setStatuses(column(report.statuses));
        result.setPayloadSizes(column(report.sizes));
        result.setCodec(valid_text(std::get<0>(key)));
        result.setObjects(column(report.objects));
        result.setBusyMicroseconds(report.busy_microseconds);
        result.setDurationsMicroseconds(column(report.durations));
        result.setCpuMicroseconds(column(report.cpu));
        result.setPeakMemoryBytes(column(report.peaks));
        result.setRuns(column(report.runs));
      },
      std::move(report.payload));
}

void Worker::send_reports() {
  for (auto& [key, report] : reports_) send_report(key, report);
  reports_.clear();
}

void Worker::confirm(const std::vector<std::pair<std::uint64_t, CancelOutcome>>& answers) {
  if (answers.empty()) return;
  std::vector<std::uint64_t> ids;
  std::vector<std::uint8_t> outcomes;
  for (const auto& [id, outcome] : answers) {
    ids.push_back(id);
    outcomes.push_back(static_cast<std::uint8_t>(outcome));
  }
  connection_->send([&](Message::Builder message) {
    auto confirmation = message.initTaskCancelConfirm();
    confirmation.setIds(column(ids));
    confirmation.setOutcomes(column(outcomes));
  });
}

Exit serve(const Options& options, const Functions& functions) {
  // Blocked before there are threads, so that they come by the descriptor alone.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  const Descriptor signals(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
  const std::unique_ptr<void, int (*)(void*)> context(zmq_ctx_new(), zmq_ctx_term);
  return Worker(options, functions, context.get(), signals.number()).run();
}

}  // namespace worker

// What this worker does with the scheduler: says Hello, takes tasks, reports outcomes, comes back, leaves.
//
// Rules: all of it happens on one thread, which never blocks but in poll; tasks run elsewhere (runner.hpp). What belongs
// to a session is in Session, and goes with it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "connection.hpp"
#include "objects.hpp"
#include "runner.hpp"

namespace worker {

class Worker {
 public:
  // `signals`: a signalfd for SIGTERM and SIGINT.
  Worker(const Options& options, const Functions& functions, void* context, int signals);
  Exit run();

 private:
  // One batch of outcomes that go out together.
  struct Report {
    std::vector<std::uint64_t> ids, objects, durations, cpu, peaks, runs;
    std::vector<std::uint8_t> statuses;
    std::vector<std::uint32_t> sizes;
    std::string payload;
    std::uint64_t busy_microseconds = 0;
  };
  using ReportKey = std::tuple<std::string, bool, bool>;  // codec, profiling, long tasks

  struct Session {
    std::uint32_t number = 0;
    std::uint64_t inline_bytes = 0;  // results from this size on become objects
    std::uint64_t report_bytes = 0;  // results and Failures of one TaskResult
    std::chrono::milliseconds heartbeat_interval{}, timeout{};
    Clock::time_point next_heartbeat{};
    std::uint64_t heartbeats = 0;
    bool draining = false;
    bool watched = false;  // somebody looks on: reports say which thread ran what
    std::unique_ptr<Objects> objects;
    std::unordered_map<std::uint64_t, InstancePointer> held;  // every task without an end that was sent
    std::unordered_map<std::uint64_t, std::vector<InstancePointer>> waiting;  // by the object that they need
    std::unordered_map<std::uint64_t, Event> fetched_later;  // outcomes whose result the scheduler still fetches
  };

  void connect();
  void disconnect(const std::string& why);
  void log(const std::string& text) const;
  void say_hello();
  void end_session();
  void leave();
  void go();
  long milliseconds_to_next_duty() const;
  void keep_time();

  void receive();
  void handle(Message::Reader message, const Bytes& payload);
  void handle_welcome(Welcome::Reader welcome);
  void handle_refusal(Refusal::Reader refusal);
  void handle_disconnect(DisconnectRequest::Reader request);
  void handle_task(Task::Reader task, const Bytes& payload);
  void handle_cancel(TaskCancel::Reader cancel);
  void handle_balance(BalanceRequest::Reader request);

  void object_arrived(std::uint64_t object, std::optional<Bytes> content);
  void object_fetched(std::uint64_t object);
  void lose(const InstancePointer& instance, const std::string& message);
  void send_heartbeat();
  void report_events();
  void enter(const Event& event, std::uint64_t object);
  void send_report(const ReportKey& key, Report& report);
  void send_reports();
  void confirm(const std::vector<std::pair<std::uint64_t, CancelOutcome>>& answers);
  std::string failure_of(const Instance& instance, const Outcome& outcome) const;

  const Options& options_;
  const Functions& functions_;
  void* context_;
  int signals_;
  Runner runner_;
  std::unique_ptr<Connection> connection_;
  std::optional<Session> session_;
  std::map<ReportKey, Report> reports_;
  std::uint32_t previous_session_ = 0;
  std::optional<Exit> exit_;
  bool leaving_ = false;
  std::optional<Clock::time_point> greeted_at_;  // when libzmq took the Hello that is not answered yet
  unsigned faults_ = 0;                          // what came and was no message
  unsigned failed_attempts_ = 0;                 // since the last Welcome
  Clock::time_point apart_since_ = Clock::now();
  Clock::time_point last_heard_{}, connect_at_{}, leave_by_{};
};

}  // namespace worker

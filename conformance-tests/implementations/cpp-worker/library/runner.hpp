// Runs tasks on threads, one for each slot, and collects what became of them.
//
// Rules: a task of ours is an Instance, as the scheduler calls it. Its stage changes under the runner's mutex. The thread
// of the session (main) adds, withdraws and stops instances and collects events; the threads of the slots take and
// finish them. A thread cannot be killed: a function is stopped by asking, through Control, which throws Stopped.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common.capnp.h"
#include "worker.hpp"

namespace worker {

// Bytes, and whatever keeps them alive: a frame, a string, a mapped file.
struct Bytes {
  std::shared_ptr<const void> owner;
  std::string_view view;

  static Bytes of(std::string text) {
    auto kept = std::make_shared<const std::string>(std::move(text));
    return {kept, *kept};
  }
};

// What all tasks of one Task message share.
struct Batch {
  std::string function_name;
  std::string codec;
  const Function* function = nullptr;  // null: it is not served, and each task fails
  std::int32_t priority = 0;
  std::uint16_t attempt = 1;
  std::uint64_t time_limit_milliseconds = 0;
  bool profiling = false;
  bool stream_output = false;
};

enum class Stage { waiting, queued, running, finished };

struct Instance {
  std::uint64_t id = 0;
  std::shared_ptr<const Batch> batch;
  Bytes arguments;

  Stage stage = Stage::waiting;                       // under the runner's mutex
  std::pair<std::int64_t, std::uint64_t> place;       // likewise: in the queue
  int wake = -1;                                      // likewise: the eventfd of the slot that runs it
  std::atomic<bool> stop{false};                      // it should end; the slot's eventfd says so too
  bool cancelled = false;                             // the session's own: a forced cancel waits for its end
};

using InstancePointer = std::shared_ptr<Instance>;

struct Outcome {
  TaskStatus status = TaskStatus::SUCCESS;
  FailureKind kind = FailureKind::TASK_RAISED;
  std::string type_name;
  std::string message;
  Bytes result;
  std::uint64_t duration_microseconds = 0;
  std::uint64_t cpu_microseconds = 0;
  std::uint64_t peak_bytes = 0;
  std::uint32_t thread = 0;  // that ran it; 0: none did
};

// Something that the scheduler should know: output of an instance (stream 1 or 2), or its outcome (stream 0).
struct Event {
  InstancePointer instance;
  std::uint8_t stream = 0;
  std::string text;
  Outcome outcome;
};

class Runner {
 public:
  explicit Runner(unsigned slots);
  ~Runner();

  // Readable when there are events.
  int descriptor() const { return ready_.number(); }
  std::vector<Event> collect();

  void add(const std::vector<InstancePointer>& instances);
  // Takes a queued instance out; false if it is not queued.
  bool withdraw(Instance& instance);
  // Takes out up to `count` queued instances, those first that would start last.
  std::vector<std::uint64_t> give_back(std::size_t count);
  // Asks a running instance to end.
  void stop(Instance& instance);
  Stage stage_of(const Instance& instance) const;
  std::size_t queued() const;
  // Forgets what is queued and asks all that runs to end.
  void abandon();
  // Ends the threads; false if a function does not end within `patience`.
  bool close(std::chrono::milliseconds patience);

 private:
  friend class Control;
  struct Slot {
    Descriptor wake;
    Instance* current = nullptr;
    std::thread thread;
  };

  void work(Slot& slot);
  void stop_locked(Instance& instance);
  void report(Event event);

  mutable std::mutex mutex_;
  std::condition_variable work_or_end_;
  std::condition_variable slot_free_;
  std::map<std::pair<std::int64_t, std::uint64_t>, InstancePointer> queue_;  // by priority, then by order of arrival
  std::uint64_t arrivals_ = 0;
  std::vector<Event> events_;
  Descriptor ready_;
  bool closing_ = false;
  unsigned busy_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace worker

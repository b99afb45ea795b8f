// Jobs, as the tasks that this worker was sent are called here; their functions, and the slots that run them.
//
// Rules: a function gets its arguments decoded and returns its result; whatever it throws makes its task fail. A thread
// cannot be killed: a function that may run for long calls `check` or `wait` of its job every few milliseconds.
#pragma once

#include <kj/io.h>
#include <sys/eventfd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <vector>

#include "common.capnp.h"

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;
struct Job;

// One function, in each codec that it takes; null in the other.
struct Function {
  Json (*json)(const Json& arguments, const Job&);
  std::string (*raw)(std::string_view argument, const Job&);
};
using Functions = std::map<std::string, Function>;  // by name
Functions served_functions();

// Thrown: why a task has no result. An exception of Json's means ARGUMENT_NOT_LOADED, and any other TASK_RAISED.
struct Failed {
  FailureKind kind;
  std::string message, type_name = {};
  MissingReason missing_reason = MissingReason::UNKNOWN;
};

struct Batch {  // what all tasks of one Task message share
  std::string function_name, codec, worker_name;
  const Function* function;  // null: it is not served, and each task fails
  std::uint16_t attempt;
  std::uint64_t time_limit_milliseconds;
  bool is_profiled;
};

struct Job {
  // For functions: throws if the task has to end.
  void check() const;
  // Likewise, and waits until `descriptor` is ready for `events`, or the time has come.
  void wait(int descriptor = -1, short events = 0, Clock::time_point until = Clock::time_point::max()) const;

  void run();                       // to its end
  void fail(const Failed& failed);  // is its end
  void stop();                      // asks for it while it runs

  std::uint64_t id = 0;
  std::shared_ptr<const Batch> batch;
  std::pair<std::int64_t, std::uint64_t> turn;   // in the queue: by priority, then by arrival
  std::uint64_t arguments_object = 0;            // that has its arguments; 0: they came with the task
  std::shared_ptr<const std::string> arguments;  // null while they are fetched
  bool is_cancelled = false;                     // if by force: answered when it has ended
  std::atomic<bool> is_stopped{false};  // it has to end
  int wake = -1;                        // an eventfd, readable once it is stopped
  Clock::time_point began{};  // in its slot
  Clock::time_point time_limit = Clock::time_point::max();
  TaskStatus status = TaskStatus::SUCCESS;
  std::string payload;       // the result or Failure
  std::uint64_t object = 0;  // that has the result instead
  std::uint64_t microseconds = 0, cpu_microseconds = 0, peak_memory_bytes = 0, thread = 0;
};
using JobPointer = std::shared_ptr<Job>;

// Text as a message may have it: not endless, and UTF-8.
std::string valid_text(const std::string& text);

class Slots {  // one thread each, which runs one job at a time
 public:
  explicit Slots(unsigned count) {
    while (threads_.size() < count) threads_.emplace_back([this] { work(); });
  }

  ~Slots() {
    abandon(true);
    changed_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  const kj::AutoCloseFd bell{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};  // readable when jobs have ended

  std::vector<JobPointer> collect() {
    eventfd_t rings;
    eventfd_read(bell, &rings);
    const std::lock_guard lock(mutex_);
    return std::exchange(ended_, {});
  }

  void add(const std::vector<JobPointer>& jobs) {
    std::unique_lock lock(mutex_);
    for (const auto& job : jobs) queue_.emplace(job->turn, job);
    lock.unlock();
    for (std::size_t count = std::min(jobs.size(), threads_.size()); count > 0; --count) changed_.notify_one();
  }

  // The jobs that run: since when, by id.
  std::map<std::uint64_t, Clock::time_point> running() {
    const std::lock_guard lock(mutex_);
    std::map<std::uint64_t, Clock::time_point> found;
    for (const auto& job : running_) found[job->id] = job->began;
    return found;
  }

  // Takes a job back; false if it has started.
  bool withdraw(const JobPointer& job) {
    const std::lock_guard lock(mutex_);
    return queue_.erase(job->turn) != 0;
  }

  // Takes back at most so many that have not started, those first that would start last.
  std::vector<JobPointer> withdraw_last(std::size_t count) {
    const std::lock_guard lock(mutex_);
    std::vector<JobPointer> jobs;
    while (jobs.size() < count && !queue_.empty()) jobs.push_back(queue_.extract(std::prev(queue_.end())).mapped());
    return jobs;
  }

  // Asks a job to end, if it runs.
  void stop(const JobPointer& job) {
    const std::lock_guard lock(mutex_);
    if (running_.count(job) != 0) job->stop();
  }

  // Forgets all jobs, and asks those that run to end.
  void abandon(bool is_closing = false) {
    const std::lock_guard lock(mutex_);
    is_closing_ = is_closing;
    queue_.clear();
    ended_.clear();
    for (const auto& job : std::exchange(running_, {})) job->stop();
  }

 private:
  void work() {
    const kj::AutoCloseFd wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return is_closing_ || !queue_.empty(); });
      if (is_closing_) return;
      const JobPointer job = queue_.extract(queue_.begin()).mapped();
      job->wake = wake;
      job->began = Clock::now();
      running_.insert(job);
      lock.unlock();
      job->run();
      lock.lock();
      eventfd_t rings;
      if (job->is_stopped) eventfd_read(wake, &rings);
      if (running_.erase(job) == 0) continue;  // it was abandoned
      if (ended_.empty()) eventfd_write(bell, 1);
      ended_.push_back(job);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<decltype(Job::turn), JobPointer> queue_;
  std::set<JobPointer> running_;
  std::vector<JobPointer> ended_;
  bool is_closing_ = false;
  std::vector<std::thread> threads_;
};

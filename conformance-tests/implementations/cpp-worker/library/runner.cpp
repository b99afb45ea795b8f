#include "runner.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <system_error>

#include "codecs.hpp"

namespace worker {

namespace {

Descriptor make_eventfd() {
  const int number = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (number < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  return Descriptor(number);
}

void ring(int number) {
  // It can only fail when the counter is full, and then it rings already.
  [[maybe_unused]] const auto written = eventfd_write(number, 1);
}

void quiet(int number) {
  eventfd_t count = 0;
  [[maybe_unused]] const auto read = eventfd_read(number, &count);
}

std::uint64_t microseconds(const timeval& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * 1000000 + static_cast<std::uint64_t>(time.tv_usec);
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

Control::Control(Runner& runner, const InstancePointer& instance, int wake, Clock::time_point started)
    : runner_(runner), instance_(instance), wake_(wake) {
  // A limit of more than a hundred years is none; it could not be added.
  const auto limit = instance->batch->time_limit_milliseconds;
  if (limit != 0 && limit < 3'000'000'000'000) limit_ = started + std::chrono::milliseconds(limit);
}

void Control::check() const {
  if (instance_->stop.load(std::memory_order_relaxed)) throw Stopped{false};
  if (limit_ != Clock::time_point::max() && Clock::now() >= limit_) throw Stopped{true};
}

bool Control::wait(Clock::time_point until, int descriptor, short events) const {
  for (;;) {
    check();
    const auto now = Clock::now();
    if (now >= until) return false;
    const auto left = std::min<Clock::duration>(std::min(until, limit_) - now, std::chrono::hours(1));
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    const timespec time{static_cast<time_t>(nanoseconds / 1'000'000'000), static_cast<long>(nanoseconds % 1'000'000'000)};
    pollfd watched[2] = {{wake_, POLLIN, 0}, {descriptor, events, 0}};
    if (ppoll(watched, descriptor < 0 ? 1 : 2, &time, nullptr) > 0 && watched[1].revents != 0) return true;
  }
}

void Control::write(std::uint8_t stream, const std::string& text) const {
  if (!instance_->batch->stream_output) {
    std::FILE* file = stream == 1 ? stdout : stderr;
    std::fwrite(text.data(), 1, text.size(), file);
    std::fflush(file);
    return;
  }
  Event event;
  event.instance = instance_;
  event.stream = stream;
  event.text = text;
  runner_.report(std::move(event));
}

Runner::Runner(unsigned slots) : ready_(make_eventfd()) {
  slots_.reserve(slots);
  for (unsigned number = 0; number < slots; ++number) slots_.push_back(Slot{make_eventfd(), nullptr, {}});
  for (auto& slot : slots_) slot.thread = std::thread([this, &slot] { work(slot); });
}

Runner::~Runner() { close(std::chrono::hours(24)); }

bool Runner::close(std::chrono::milliseconds patience) {
  {
    std::unique_lock lock(mutex_);
    closing_ = true;
    queue_.clear();
    for (auto& slot : slots_)
      if (slot.current != nullptr) stop_locked(*slot.current);
    work_or_end_.notify_all();
    if (!slot_free_.wait_for(lock, patience, [this] { return busy_ == 0; })) return false;
  }
  for (auto& slot : slots_)
    if (slot.thread.joinable()) slot.thread.join();
  return true;
}

std::vector<Event> Runner::collect() {
  quiet(ready_.number());
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

void Runner::report(Event event) {
  const std::lock_guard lock(mutex_);
  if (events_.empty()) ring(ready_.number());
  events_.push_back(std::move(event));
}

void Runner::add(const std::vector<InstancePointer>& instances) {
  const std::lock_guard lock(mutex_);
  for (const auto& instance : instances) {
    instance->stage = Stage::queued;
    instance->place = {-static_cast<std::int64_t>(instance->batch->priority), arrivals_++};
    queue_.emplace_hint(queue_.end(), instance->place, instance);
  }
  if (instances.size() == 1) {
    work_or_end_.notify_one();
  } else {
    work_or_end_.notify_all();
  }
}

bool Runner::withdraw(Instance& instance) {
  const std::lock_guard lock(mutex_);
  if (instance.stage != Stage::queued) return false;
  instance.stage = Stage::finished;
  queue_.erase(instance.place);
  return true;
}

std::vector<std::uint64_t> Runner::give_back(std::size_t count) {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> ids;
  while (ids.size() < count && !queue_.empty()) {
    const auto last = std::prev(queue_.end());
    last->second->stage = Stage::finished;
    ids.push_back(last->second->id);
    queue_.erase(last);
  }
  return ids;
}

void Runner::stop(Instance& instance) {
  const std::lock_guard lock(mutex_);
  if (instance.stage == Stage::running) stop_locked(instance);
}

void Runner::stop_locked(Instance& instance) {
  instance.stop.store(true, std::memory_order_relaxed);
  ring(instance.wake);
}

Stage Runner::stage_of(const Instance& instance) const {
  const std::lock_guard lock(mutex_);
  return instance.stage;
}

std::size_t Runner::queued() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

void Runner::abandon() {
  const std::lock_guard lock(mutex_);
  queue_.clear();
  events_.clear();
  for (auto& slot : slots_)
    if (slot.current != nullptr) stop_locked(*slot.current);
}

void Runner::work(Slot& slot) {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_or_end_.wait(lock, [this] { return closing_ || !queue_.empty(); });
    if (closing_) return;
    Event event;
    event.instance = std::move(queue_.extract(queue_.begin()).mapped());
    Instance& instance = *event.instance;
    instance.stage = Stage::running;
    instance.wake = slot.wake.number();
    slot.current = &instance;
    ++busy_;
    lock.unlock();

    const auto started = Clock::now();
    rusage before{}, after{};
    const bool profiling = instance.batch->profiling;
    if (profiling) getrusage(RUSAGE_THREAD, &before);
    event.outcome = call(*instance.batch, instance.arguments, Control(*this, event.instance, instance.wake, started));
    if (profiling) {
      getrusage(RUSAGE_THREAD, &after);
      event.outcome.cpu_microseconds = microseconds(after.ru_utime) + microseconds(after.ru_stime) -
                                       microseconds(before.ru_utime) - microseconds(before.ru_stime);
      // Threads share their memory: it is the peak of the process, in KiB.
      event.outcome.peak_bytes = static_cast<std::uint64_t>(after.ru_maxrss) * 1024;
    }
    event.outcome.thread = static_cast<std::uint32_t>(gettid());
    event.outcome.duration_microseconds = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - started).count());

    lock.lock();
    instance.stage = Stage::finished;
    slot.current = nullptr;
    --busy_;
    if (instance.stop.load(std::memory_order_relaxed)) quiet(slot.wake.number());
    if (events_.empty()) ring(ready_.number());
    events_.push_back(std::move(event));
    if (closing_) slot_free_.notify_all();
  }
}

}  // namespace worker

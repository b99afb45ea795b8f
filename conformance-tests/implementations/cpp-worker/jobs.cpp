#include "jobs.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

static Json parse(const std::string& text) {
  const auto check_depth = [](int depth, Json::parse_event_t, const Json&) {
    if (depth > 1000) throw Failed{FailureKind::ARGUMENT_NOT_LOADED, "the JSON is nested deeper than 1000"};
    return true;  // what is nested deeper could overflow the stack of a thread
  };
  Json arguments = text.empty() ? Json::array() : Json::parse(text, check_depth);
  if (!arguments.is_array()) throw Failed{FailureKind::ARGUMENT_NOT_LOADED, "the arguments are no JSON array"};
  return arguments;
}

static std::string call(const Job& job) {
  const Batch& batch = *job.batch;
  if (batch.function == nullptr)  // SCL-COD-004
    throw Failed{FailureKind::FUNCTION_NOT_LOADED, "this worker does not serve '" + batch.function_name + "'"};
  const auto& [json, raw] = *batch.function;
  if (batch.codec == "raw" && raw) return raw(*job.arguments, job);
  if (batch.codec == "json" && json) {
    const Json result = json(parse(*job.arguments), job);
    try {
      return result.dump();
    } catch (const Json::exception& error) {
      throw Failed{FailureKind::RESULT_NOT_SERIALIZABLE, error.what()};
    }
  }
  throw Failed{FailureKind::CODEC_UNKNOWN, batch.function_name + " does not take the codec '" + batch.codec + "'"};
}

static double cpu_seconds_of_thread() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

void Job::run() {
  const auto begin = Clock::now();
  const auto limit = batch->time_limit_milliseconds;
  if (limit != 0 && limit < 1e12) time_limit = begin + std::chrono::milliseconds(limit);  // decades cannot be added
  const auto cpu_begin = batch->is_profiled ? cpu_seconds_of_thread() : 0;
  try {
    payload = call(*this);
  } catch (const Failed& failed) {
    fail(failed);
  } catch (const Json::exception& error) {  // SCL-COD-008
    fail({FailureKind::ARGUMENT_NOT_LOADED, error.what()});
  } catch (const std::exception& error) {
    fail({FailureKind::TASK_RAISED, error.what()});
  } catch (...) {
    fail({FailureKind::TASK_RAISED, "the function threw what is no exception"});
  }
  microseconds = static_cast<std::uint64_t>((Clock::now() - begin) / std::chrono::microseconds(1));
  thread = static_cast<std::uint64_t>(gettid());
  if (!batch->is_profiled) return;
  cpu_microseconds = static_cast<std::uint64_t>(1e6 * (cpu_seconds_of_thread() - cpu_begin));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);  // threads share their memory
  peak_memory_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

void Job::fail(const Failed& failed) {
  capnp::MallocMessageBuilder builder;
  auto failure = builder.initRoot<Failure>();
  failure.setKind(failed.kind);
  failure.setTypeName(valid_text(failed.type_name));
  failure.setMessage(valid_text(failed.message));
  failure.setWorker(batch->worker_name);  // SCL-WRK-031
  failure.setAttempts(batch->attempt);
  failure.setMissingReason(failed.missing_reason);
  const auto words = capnp::messageToFlatArray(builder);
  payload.assign(words.asChars().begin(), words.asChars().size());
  const bool has_run = failed.kind != FailureKind::TIME_LIMIT && failed.kind != FailureKind::OBJECT_MISSING;
  status = has_run ? TaskStatus::FAILED : TaskStatus::LOST;
}

void Job::stop() {
  is_stopped = true;
  eventfd_write(wake, 1);
}

void Job::check() const {
  if (is_stopped) throw Failed{FailureKind::TASK_RAISED, "stopped"};  // its outcome is not needed
  if (time_limit != Clock::time_point::max() && Clock::now() >= time_limit)
    throw Failed{FailureKind::TIME_LIMIT, "it ran for longer than its time limit"};  // SCL-WRK-010
}

void Job::wait(int descriptor, short events, Clock::time_point until) const {
  pollfd watched[] = {{wake, POLLIN, 0}, {descriptor, events, 0}};
  for (check(); watched[1].revents == 0 && Clock::now() < until; check()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::min(until, time_limit) - Clock::now());
    poll(watched, 2, static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3'600'000)));
  }
}

std::string valid_text(const std::string& text) {
  const auto written = Json(text.substr(0, 64 << 10)).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(written).get<std::string>();
}

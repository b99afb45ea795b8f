// A worker of the Scaler protocol, for programs that bring the functions.
//
//   worker::Options options;
//   options.address = "tcp://127.0.0.1:2345";
//   return static_cast<int>(worker::serve(options, {{"example.org/twice", {twice, {}, false}}}));
//
// Rules: a function gets its arguments decoded and returns its result; how both look in bytes is the codec's business
// (codecs.cpp). One that is `stoppable` asks its Control often enough to end within some milliseconds of being asked.
// Nothing else of this folder is for programs.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace worker {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;
class Runner;
struct Instance;

// What a running function may ask for.
class Control {
 public:
  Control(Runner& runner, const std::shared_ptr<Instance>& instance, int wake, Clock::time_point started);

  // Throws Stopped if the task should end.
  void check() const;
  // Waits until `descriptor` is ready for `events` (returns true) or the time is there (false); throws Stopped.
  bool wait(Clock::time_point until, int descriptor = -1, short events = 0) const;
  // Writes to the task's standard output (stream 1) or error (2).
  void write(std::uint8_t stream, const std::string& text) const;

 private:
  Runner& runner_;
  const std::shared_ptr<Instance>& instance_;
  int wake_;
  Clock::time_point limit_ = Clock::time_point::max();
};

struct Function {
  std::function<Json(const Json& arguments, const Control& control)> json;            // empty: not in this codec
  std::function<std::string(std::string_view argument, const Control& control)> raw;  // likewise
  bool stoppable = false;
};

using Functions = std::map<std::string, Function>;  // by name

// Thrown through a function that was asked to stop; it should not be caught.
struct Stopped {
  bool time_limit;
};

// The arguments cannot be read, or do not fit.
struct WrongArguments : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The result cannot be written in the codec.
struct UnwritableResult : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The function failed, in its own words. Any other exception is told likewise, with the name of its type.
struct Raised : std::runtime_error {
  Raised(std::string type, const std::string& message) : std::runtime_error(message), type_name(std::move(type)) {}
  std::string type_name;
};

// A descriptor of the system, closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor();
  int number() const { return number_; }

 private:
  int number_;
};

struct Options {
  std::string address;  // of the scheduler: tcp://HOST:PORT or ipc://PATH
  std::string implementation = "worker", version;  // what the program calls itself
  unsigned slots = 1;         // tasks at a time
  unsigned queue_size = 256;  // tasks taken for each slot
  std::string name;           // in errors and logs
  std::vector<std::pair<std::string, double>> capabilities;
  bool share_directory = true;   // the scheduler's, for objects
  double patience_seconds = 60;  // how long to look for a scheduler before giving up
};

// How a worker ends; `usage` is for programs.
enum class Exit { left = 0, unreachable = 1, usage = 2, refused = 3 };

// Serves a scheduler until it is over; SIGTERM and SIGINT make it leave. To be called before there are other threads.
// Throws std::runtime_error when the address is none.
Exit serve(const Options& options, const Functions& functions);

}  // namespace worker

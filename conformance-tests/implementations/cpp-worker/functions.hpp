// The functions that this worker serves by name, and how they are called.
//
// Rules: a function gets its arguments decoded and returns its result; how both look in bytes is the codec's business
// (functions.cpp). One that is `stoppable` asks its Control often enough to end within some milliseconds of being asked.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

#include "runner.hpp"

namespace worker {

using Json = nlohmann::json;

struct Function {
  std::function<Json(const Json& arguments, const Control& control)> json;                // empty: not in this codec
  std::function<std::string(std::string_view argument, const Control& control)> raw;      // likewise
  bool stoppable = false;
};

// The arguments cannot be read, or do not fit.
struct WrongArguments : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The result cannot be written in the codec.
struct UnwritableResult : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The function failed, in its own words.
struct Raised : std::runtime_error {
  Raised(std::string type, const std::string& message) : std::runtime_error(message), type_name(std::move(type)) {}
  std::string type_name;
};

const std::map<std::string, Function>& functions();

// Runs a task. Never throws: what goes wrong is the outcome. A Stopped that is no time limit has an outcome of no
// meaning, since whoever asked for it knows what to report.
Outcome call(const Batch& batch, const Bytes& arguments, const Control& control);

}  // namespace worker

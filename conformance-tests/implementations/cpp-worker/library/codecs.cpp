#include "codecs.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <typeinfo>

namespace worker {

namespace {

constexpr std::size_t deepest_nesting = 1000;  // of JSON: what is deeper could overflow a thread's stack

void check_nesting(std::string_view text) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t position = 0; position < text.size(); ++position) {
    const char letter = text[position];
    if (in_string) {
      if (letter == '\\') ++position;
      if (letter == '"') in_string = false;
    } else if (letter == '"') {
      in_string = true;
    } else if (letter == '[' || letter == '{') {
      if (++depth > deepest_nesting)
        throw WrongArguments("the JSON is nested deeper than " + std::to_string(deepest_nesting));
    } else if ((letter == ']' || letter == '}') && depth > 0) {
      --depth;
    }
  }
}

Json decode(std::string_view text) {
  if (text.empty()) return Json::array();
  check_nesting(text);
  Json arguments;
  try {
    arguments = Json::parse(text.begin(), text.end());
  } catch (const Json::exception& error) {
    throw WrongArguments(std::string("the arguments are no JSON: ") + error.what());
  }
  if (!arguments.is_array()) throw WrongArguments("the arguments are no JSON array");
  return arguments;
}

std::string encode(const Json& result) {
  try {
    return result.dump();
  } catch (const Json::exception& error) {
    throw UnwritableResult(std::string("the result cannot be written as JSON: ") + error.what());
  }
}

std::string type_name(const std::exception& error) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(
      abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status), std::free);
  return readable ? readable.get() : typeid(error).name();
}

Outcome failure(TaskStatus status, FailureKind kind, std::string type, std::string message) {
  Outcome outcome;
  outcome.status = status;
  outcome.kind = kind;
  outcome.type_name = std::move(type);
  outcome.message = std::move(message);
  return outcome;
}

std::string called(const Batch& batch, std::string_view arguments, const Control& control) {
  if (batch.codec == "json") return encode(batch.function->json(decode(arguments), control));
  return batch.function->raw(arguments, control);
}

bool takes(const Batch& batch) {
  return (batch.codec == "json" && batch.function->json) || (batch.codec == "raw" && batch.function->raw);
}

}  // namespace

Outcome call(const Batch& batch, const Bytes& arguments, const Control& control) {
  if (batch.function == nullptr)
    return failure(TaskStatus::FAILED, FailureKind::FUNCTION_NOT_LOADED, "",
                   batch.function_name.empty() ? "this worker runs functions by name only"
                                               : "this worker does not serve " + batch.function_name);
  if (!takes(batch))
    return failure(TaskStatus::FAILED, FailureKind::CODEC_UNKNOWN, "",
                   batch.function_name + " does not take the codec '" + batch.codec + "'");
  try {
    Outcome outcome;
    outcome.result = Bytes::of(called(batch, arguments.view, control));
    return outcome;
  } catch (const Stopped& stopped) {
    return failure(TaskStatus::LOST, FailureKind::TIME_LIMIT, "",
                   stopped.time_limit ? "it ran for longer than " + std::to_string(batch.time_limit_milliseconds) + " ms"
                                      : "it was stopped");
  } catch (const WrongArguments& error) {
    return failure(TaskStatus::FAILED, FailureKind::ARGUMENT_NOT_LOADED, "", error.what());
  } catch (const UnwritableResult& error) {
    return failure(TaskStatus::FAILED, FailureKind::RESULT_NOT_SERIALIZABLE, "", error.what());
  } catch (const Raised& error) {
    return failure(TaskStatus::FAILED, FailureKind::TASK_RAISED, error.type_name, error.what());
  } catch (const std::exception& error) {
    return failure(TaskStatus::FAILED, FailureKind::TASK_RAISED, type_name(error), error.what());
  } catch (...) {
    return failure(TaskStatus::FAILED, FailureKind::TASK_RAISED, "", "the function threw what is no exception");
  }
}

}  // namespace worker

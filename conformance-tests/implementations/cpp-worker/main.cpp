// The program: its options, and the functions that it serves.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>

#include <unistd.h>

#include "functions.hpp"

namespace {

constexpr const char* help = R"(cpp_worker ADDRESS [OPTION]...

A worker of the Scaler protocol in C++. ADDRESS is that of a scheduler: tcp://HOST:PORT or ipc://PATH.

  --slots N             tasks at a time (as many as there are processors)
  --queue-size N        tasks taken for each slot, running ones included (256)
  --name NAME           shown in errors and logs (cpp-HOST-PID)
  --capabilities LIST   what the worker has: gpu=2,native
  --patience SECONDS    how long to look for a scheduler before giving up (60)
  --fetch-all           do not share the scheduler's object directory
  --help                show this and end

SIGTERM and SIGINT make it leave; a second one ends it at once. Exit codes: 0 it left, 1 no scheduler was found,
2 wrong options, 3 the scheduler refused it.

Functions that it serves, by name:
)";

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "cpp_worker: %s (--help shows the options)\n", message.c_str());
  std::exit(static_cast<int>(worker::Exit::usage));
}

double number(const std::string& option, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 0) || value > 1e9) fail(option + " needs a number and got '" + text + "'");
  return value;
}

unsigned whole(const std::string& option, const std::string& text, unsigned least, unsigned most) {
  const double value = number(option, text);
  if (value != static_cast<unsigned>(value) || value < least || value > most)
    fail(option + " is to be from " + std::to_string(least) + " to " + std::to_string(most) + ", not " + text);
  return static_cast<unsigned>(value);
}

std::vector<std::pair<std::string, double>> capabilities(const std::string& list) {
  std::vector<std::pair<std::string, double>> found;
  for (std::size_t begin = 0; begin <= list.size();) {
    const auto end = std::min(list.find(',', begin), list.size());
    const std::string entry = list.substr(begin, end - begin);
    const auto equals = entry.find('=');
    if (entry.empty() || equals == 0) fail("--capabilities needs a list like gpu=2,native and got '" + list + "'");
    found.emplace_back(entry.substr(0, equals),
                       equals == std::string::npos ? 1 : number("--capabilities", entry.substr(equals + 1)));
    begin = end + 1;
  }
  return found;
}

worker::Options read_options(int count, char** words) {
  worker::Options options;
  options.implementation = "cpp_worker";
  options.version = "1.0";
  options.slots = std::max(1U, std::thread::hardware_concurrency());
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  options.name = "cpp-" + std::string(host) + "-" + std::to_string(getpid());
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const auto value = [&]() -> std::string {
      if (++i >= count) fail(word + " needs a value");
      return words[i];
    };
    if (word == "--help") {
      std::fputs(help, stdout);
      for (const auto& [name, function] : served::functions())
        std::printf("  %-28s %s%s%s\n", name.c_str(), function.json ? "json" : "",
                    function.json && function.raw ? ", " : "", function.raw ? "raw" : "");
      std::exit(0);
    } else if (word == "--slots") {
      options.slots = whole(word, value(), 1, 1024);
    } else if (word == "--queue-size") {
      options.queue_size = whole(word, value(), 0, 1000000);
    } else if (word == "--name") {
      options.name = value();
    } else if (word == "--capabilities") {
      options.capabilities = capabilities(value());
    } else if (word == "--patience") {
      options.patience_seconds = number(word, value());
    } else if (word == "--fetch-all") {
      options.share_directory = false;
    } else if (word.rfind("--", 0) == 0) {
      fail("there is no option " + word);
    } else if (options.address.empty()) {
      options.address = word;
    } else {
      fail("one address is enough, and there is also " + word);
    }
  }
  if (options.address.empty()) fail("the address of a scheduler is missing");
  return options;
}

}  // namespace

int main(int count, char** words) {
  const worker::Options options = read_options(count, words);
  try {
    return static_cast<int>(worker::serve(options, served::functions()));
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

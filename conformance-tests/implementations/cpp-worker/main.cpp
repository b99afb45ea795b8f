// The program: its options, and one session after the other.
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <fstream>
#include <map>
#include <regex>
#include <stdexcept>

#include "session.hpp"

// What `scaler keys new` writes: lines such as  public_key = "..."  and  server_keys = ["...", "..."]
static Keys read_keys(const std::string& path) {
  struct stat found{};
  if (stat(path.c_str(), &found) != 0) throw std::runtime_error(path + ": " + std::strerror(errno));
  if ((found.st_mode & 077) != 0) throw std::runtime_error(path + ": others can access it; run: chmod 600 " + path);
  std::map<std::string, std::string> texts;
  std::ifstream file(path);
  const std::regex entry("(\\w+) *= *\\[? *\"([^\"]*)\".*");
  for (std::string line; std::getline(file, line);)
    if (std::smatch parts; std::regex_match(line, parts, entry)) texts[parts[1]] = parts[2];
  const Keys keys{texts["public_key"], texts["secret_key"], texts["server_keys"]};
  for (const auto& key : {keys.own, keys.secret, keys.server})
    if (key.size() != 40) throw std::runtime_error(path + ": it has not all keys, of 40 characters each");
  return keys;
}

// `signals` is readable when the worker has to leave.
static int serve(const Options& options, Slots& slots, int signals) {
  static const Functions functions = served_functions();  // for jobs that outlive this, too
  zmq::context_t context;
  auto last_seen = Clock::now();
  for (auto pause = 50ms;; pause = std::min(2 * pause, 2000ms)) {  // SCL-TRN-009
    Session session(options, functions, slots, context);
    const auto end = session.run(signals);
    if (end != Session::End::lost) return end == Session::End::left ? 0 : 3;
    if (session.was_welcome()) {
      last_seen = Clock::now();
      pause = 50ms;
    } else if (Clock::now() - last_seen >= options.patience_seconds * 1s) {
      log("there is no scheduler at " + options.address);
      return 1;
    }
    pollfd signal{signals, POLLIN, 0};
    if (poll(&signal, 1, static_cast<int>(pause.count())) > 0) return 0;
  }
}

int main(int count, char** words) {
  Options options;
  CLI::App app("A worker of the Scaler protocol in C++. SIGTERM and SIGINT make it leave.", "cpp_worker");
  app.add_option("address", options.address, "of the scheduler: tcp://HOST:PORT or ipc://PATH")->required();
  app.add_option("--slots", options.slots, "tasks at a time")->capture_default_str()->check(CLI::Range(1, 1024));
  app.add_option("--name", options.name, "shown in errors and logs")->capture_default_str();
  app.add_option("--capabilities", options.capabilities, "what the worker has: gpu,native")->delimiter(',');
  app.add_option("--patience", options.patience_seconds, "seconds to look for a scheduler")->capture_default_str();
  std::string key_file;
  app.add_option("--key-file", key_file, "of scaler keys new --role worker")->envname("SCALER_KEY_FILE");
  app.footer("Exit codes: 0 it left, 1 no scheduler was found, 3 the scheduler refused it, others: wrong options.");
  CLI11_PARSE(app, count, words);
  // Blocked before there are threads, so that they come by the descriptor alone.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  try {
    if (!key_file.empty()) options.keys = read_keys(key_file);
    Slots slots(options.slots);
    const int code = serve(options, slots, signalfd(-1, &ends, SFD_CLOEXEC));
    alarm(5);  // SIGALRM ends what a function prevents from ending
    return code;
  } catch (const zmq::error_t& error) {
    log(options.address + ": " + error.what());
    return 2;
  } catch (const std::runtime_error& error) {
    log(error.what());
    return 2;
  }
}

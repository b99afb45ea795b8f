#include "functions.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "sha256.hpp"

namespace served {

using namespace worker;

namespace {

// Arguments, checked.

const Json& argument(const Json& arguments, std::size_t position) {
  if (position >= arguments.size()) throw WrongArguments("argument " + std::to_string(position + 1) + " is missing");
  return arguments[position];
}

[[noreturn]] void wrong(std::size_t position, const char* wanted, const Json& found) {
  throw WrongArguments("argument " + std::to_string(position + 1) + " is to be " + wanted + " and is of type " +
                       found.type_name());
}

double number(const Json& arguments, std::size_t position) {
  const Json& value = argument(arguments, position);
  if (!value.is_number()) wrong(position, "a number", value);
  return value.get<double>();
}

std::uint64_t count(const Json& arguments, std::size_t position) {
  const Json& value = argument(arguments, position);
  if (!value.is_number_unsigned()) wrong(position, "an integer, not negative,", value);
  return value.get<std::uint64_t>();
}

const std::string& text(const Json& arguments, std::size_t position) {
  const Json& value = argument(arguments, position);
  if (!value.is_string()) wrong(position, "a string", value);
  return value.get_ref<const std::string&>();
}

Clock::time_point after(double milliseconds) {
  if (milliseconds < 0) throw WrongArguments("a time is not negative");
  // NaN cannot come from JSON. A hundred years are for ever.
  const double bounded = std::min(milliseconds, 3e12);
  return Clock::now() + std::chrono::microseconds(static_cast<std::int64_t>(std::ceil(bounded * 1000)));
}

// The conformance functions.

Json echo(const Json& arguments, const Control&) { return argument(arguments, 0); }

Json sum(const Json& arguments, const Control&) {
  bool integers = true;
  __extension__ __int128 whole = 0;  // no array is long enough to overflow it
  double real = 0;
  for (std::size_t position = 0; position < arguments.size(); ++position) {
    const Json& value = arguments[position];
    real += number(arguments, position);
    if (value.is_number_unsigned()) {
      whole += value.get<std::uint64_t>();
    } else if (value.is_number_integer()) {
      whole += value.get<std::int64_t>();
    } else {
      integers = false;
    }
  }
  if (integers && whole >= 0 && whole <= std::numeric_limits<std::uint64_t>::max())
    return static_cast<std::uint64_t>(whole);
  if (integers && whole < 0 && whole >= std::numeric_limits<std::int64_t>::min())
    return static_cast<std::int64_t>(whole);
  if (!std::isfinite(real)) throw UnwritableResult("the sum is not finite, and JSON has no such number");
  return real;
}

Json fail(const Json& arguments, const Control&) {
  throw Raised("scaler.conformance.Failure", text(arguments, 0));
}

Json sleep(const Json& arguments, const Control& control) {
  const auto until = after(number(arguments, 0));
  while (control.wait(until)) {
  }
  return nullptr;
}

Json busy(const Json& arguments, const Control& control) {
  const auto until = after(number(arguments, 0));
  while (Clock::now() < until) control.check();
  return nullptr;
}

Json size(const Json& arguments, const Control&) { return std::string(count(arguments, 0), 'x'); }

std::string raw_size(std::string_view argument, const Control&) {
  if (argument.empty() || argument.size() > 18 || argument.find_first_not_of("0123456789") != std::string_view::npos)
    throw WrongArguments("the argument is to be a count in ASCII decimals");
  return std::string(std::stoull(std::string(argument)), 'x');
}

Json log(const Json& arguments, const Control& control) {
  const auto stream = count(arguments, 0);
  if (stream != 1 && stream != 2) throw WrongArguments("the stream is to be 1 or 2");
  control.write(static_cast<std::uint8_t>(stream), text(arguments, 1));
  return nullptr;
}

Json hang(const Json&, const Control& control) {
  for (;;) control.wait(Clock::time_point::max());
}

Raised conformance_failure(const std::string& message) { return Raised("scaler.conformance.Failure", message); }

Descriptor connect_to(const std::string& host, const std::string& port, const Control& control) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0)
    throw conformance_failure(host + ": " + gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  int error = 0;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    Descriptor connection(
        socket(address->ai_family, address->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, address->ai_protocol));
    if (connect(connection.number(), address->ai_addr, address->ai_addrlen) == 0) return connection;
    error = errno;
    if (error != EINPROGRESS) continue;
    control.wait(Clock::time_point::max(), connection.number(), POLLOUT);
    socklen_t length = sizeof error;
    getsockopt(connection.number(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error == 0) return connection;
  }
  throw conformance_failure("no connection to " + host + " port " + port + ": " + std::strerror(error));
}

Json wait(const Json& arguments, const Control& control) {
  const auto port = count(arguments, 1);
  const std::string tag = text(arguments, 2) + "\n";
  const Descriptor connection = connect_to(text(arguments, 0), std::to_string(port), control);
  const int number = connection.number();
  for (std::size_t written = 0; written < tag.size();) {
    control.wait(Clock::time_point::max(), number, POLLOUT);
    const auto now = send(number, tag.data() + written, tag.size() - written, MSG_NOSIGNAL);
    if (now < 0 && errno != EAGAIN && errno != EINTR) throw conformance_failure("the connection ended");
    if (now > 0) written += static_cast<std::size_t>(now);
  }
  std::string word;
  for (;;) {
    control.wait(Clock::time_point::max(), number, POLLIN);
    char buffer[4096];
    const auto got = recv(number, buffer, sizeof buffer, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) throw conformance_failure("the connection ended");
    const auto begin = word.size();
    word.append(buffer, static_cast<std::size_t>(got));
    if (const auto end = word.find('\n', begin); end != std::string::npos) return word.substr(0, end);
  }
}

// Two useful ones, and one that tells workers apart.

// [imaginary, real_from, real_to, columns, limit]: for each of so many points of a row of the complex plane, after how
// many steps of z := z * z + c the Mandelbrot iteration leaves the circle of radius 2; `limit` if it does not.
Json mandelbrot_row(const Json& arguments, const Control& control) {
  const double imaginary = number(arguments, 0), from = number(arguments, 1), to = number(arguments, 2);
  const auto columns = count(arguments, 3), limit = count(arguments, 4);
  Json steps = Json::array();
  for (std::uint64_t column = 0; column < columns; ++column) {
    const double real = columns < 2 ? from : from + (to - from) * static_cast<double>(column) / static_cast<double>(columns - 1);
    double x = 0, y = 0;
    std::uint64_t step = 0;
    while (step < limit && x * x + y * y <= 4) {
      const double next = x * x - y * y + real;
      y = 2 * x * y + imaginary;
      x = next;
      if (++step % 4096 == 0) control.check();
    }
    steps.push_back(step);
    control.check();
  }
  return steps;
}

std::string sha256(std::string_view argument, const Control& control) {
  Sha256 hash;
  constexpr std::size_t piece = 1 << 20;
  for (std::size_t offset = 0; offset < argument.size(); offset += piece) {
    hash.update(argument.substr(offset, piece));
    control.check();
  }
  return hash.digest();
}

}  // namespace

Functions functions() {
  return {
      {"scaler.conformance/echo", {echo, [](std::string_view argument, const Control&) { return std::string(argument); }, false}},
      {"scaler.conformance/sum", {sum, {}, false}},
      {"scaler.conformance/fail", {fail, {}, false}},
      {"scaler.conformance/sleep", {sleep, {}, true}},
      {"scaler.conformance/busy", {busy, {}, true}},
      {"scaler.conformance/size", {size, raw_size, false}},
      {"scaler.conformance/log", {log, {}, false}},
      {"scaler.conformance/hang", {hang, {}, true}},
      {"scaler.conformance/wait", {wait, {}, true}},
      {"example.org/language", {[](const Json&, const Control&) { return Json("C++17"); }, {}, false}},
      {"example.org/mandelbrot-row", {mandelbrot_row, {}, true}},
      {"example.org/sha256", {{}, sha256, true}},
  };
}

}  // namespace served

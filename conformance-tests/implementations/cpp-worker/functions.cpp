// The functions that this worker serves. For a worker of yours, write others here.
#include "jobs.hpp"

#include <kj/io.h>
#include <netdb.h>
#include <openssl/evp.h>
#include <poll.h>

#include <cmath>
#include <complex>

// An argument that is a number; Json itself would also make one of true, and a count of -1.
template <typename Number = double>
static Number number(const Json& arguments, std::size_t position) {
  const Json& value = arguments.at(position);
  if (std::is_unsigned_v<Number> ? value.is_number_unsigned() : value.is_number()) return value;
  const std::string wanted = std::is_unsigned_v<Number> ? " is to be a whole number from 0 on" : " is to be a number";
  throw Failed{FailureKind::ARGUMENT_NOT_LOADED, "argument " + std::to_string(position + 1) + wanted};
}

static const auto count = number<std::uint64_t>;

static Clock::time_point end_of(const Json& arguments) {
  const double milliseconds = number(arguments, 0);
  if (milliseconds < 0) throw Failed{FailureKind::ARGUMENT_NOT_LOADED, "a time is not negative"};
  return Clock::now() + std::chrono::microseconds(std::llround(std::ceil(1000 * std::min(milliseconds, 1e12))));
}

// The conformance functions: protocol-spec/conformance-codec.md.
static Json echo(const Json& arguments, const Job&) { return arguments.at(0); }
static std::string echo_bytes(std::string_view argument, const Job&) { return std::string(argument); }

static Json sum(const Json& arguments, const Job&) {
  bool is_whole = true;
  double total = 0;
  for (std::size_t position = 0; position < arguments.size(); ++position) {
    total += number(arguments, position);
    is_whole = is_whole && arguments[position].is_number_integer();
  }
  if (is_whole && std::abs(total) < 0x1p53) return static_cast<std::int64_t>(total);
  if (!std::isfinite(total)) throw Failed{FailureKind::RESULT_NOT_SERIALIZABLE, "the sum is not finite"};
  return total;
}

static Failed failure(std::string text) { return {FailureKind::TASK_RAISED, text, "scaler.conformance.Failure"}; }
static Json fail(const Json& arguments, const Job&) { throw failure(arguments.at(0)); }

static Json sleep(const Json& arguments, const Job& job) {
  job.wait(-1, 0, end_of(arguments));
  return nullptr;
}

static Json busy(const Json& arguments, const Job& job) {
  for (const auto end = end_of(arguments); Clock::now() < end;) job.check();
  return nullptr;
}

static Json size(const Json& arguments, const Job&) { return std::string(count(arguments, 0), 'x'); }
static std::string size_in_bytes(std::string_view argument, const Job& job) {
  return size(Json::array({Json::parse(argument)}), job);
}

static Json hang(const Json&, const Job& job) {
  for (;;) job.wait();
}

static Json wait(const Json& arguments, const Job& job) {
  const std::string host = arguments.at(0), port = std::to_string(count(arguments, 1)), tag = arguments.at(2);
  addrinfo hints{}, *address = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &address) != 0) throw failure("there is no such host");
  const kj::AutoCloseFd connection(socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  connect(connection, address->ai_addr, address->ai_addrlen);
  freeaddrinfo(address);
  job.wait(connection, POLLOUT);
  std::string heard = tag + "\n";
  if (send(connection, heard.data(), heard.size(), MSG_NOSIGNAL) < 0) throw failure("no connection");
  for (heard.clear(); heard.find('\n') == std::string::npos;) {
    job.wait(connection, POLLIN);
    char piece[1024];
    const auto bytes = recv(connection, piece, sizeof piece, 0);
    if (bytes <= 0) throw failure("the connection ended");
    heard.append(piece, static_cast<std::size_t>(bytes));
  }
  return heard.substr(0, heard.find('\n'));
}

// [imaginary, real_from, real_to, columns, limit]: for each of so many points of a row of the complex plane, after how
// many steps of z := z * z + c the Mandelbrot iteration leaves the circle of radius 2; `limit` if it does not.
static Json mandelbrot_row(const Json& arguments, const Job& job) {
  const double imaginary = number(arguments, 0), from = number(arguments, 1), to = number(arguments, 2);
  const auto columns = count(arguments, 3), limit = count(arguments, 4);
  Json row = Json::array();
  for (std::uint64_t column = 0; column < columns; ++column) {
    const double share = columns < 2 ? 0 : static_cast<double>(column) / static_cast<double>(columns - 1);
    std::uint64_t step = 0;
    for (std::complex<double> z, c(from + (to - from) * share, imaginary); step < limit && std::norm(z) <= 4; ++step) {
      z = z * z + c;
      if (step % 4096 == 0) job.check();
    }
    row.push_back(step);
  }
  return row;
}

static std::string sha256(std::string_view argument, const Job&) {
  std::string digest(32, '\0');
  auto* bytes = reinterpret_cast<unsigned char*>(digest.data());
  EVP_Digest(argument.data(), argument.size(), bytes, nullptr, EVP_sha256(), nullptr);
  return digest;
}

static Json language(const Json&, const Job&) { return "C++17"; }

Functions served_functions() {
  return {{"scaler.conformance/echo", {echo, echo_bytes}}, {"scaler.conformance/size", {size, size_in_bytes}},
          {"scaler.conformance/sum", {sum, nullptr}},      {"scaler.conformance/fail", {fail, nullptr}},
          {"scaler.conformance/busy", {busy, nullptr}},    {"scaler.conformance/sleep", {sleep, nullptr}},
          {"scaler.conformance/hang", {hang, nullptr}},    {"scaler.conformance/wait", {wait, nullptr}},
          {"example.org/sha256", {nullptr, sha256}},       {"example.org/mandelbrot-row", {mandelbrot_row, nullptr}},
          {"example.org/language", {language, nullptr}}};
}

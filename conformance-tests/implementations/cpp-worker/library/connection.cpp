#include "connection.hpp"

#include <cstring>
#include <stdexcept>
#include <vector>

namespace worker {

namespace {

struct Frame {
  Frame() { zmq_msg_init(&message); }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  ~Frame() { zmq_msg_close(&message); }
  std::string_view view() { return {static_cast<const char*>(zmq_msg_data(&message)), zmq_msg_size(&message)}; }

  zmq_msg_t message;
};

void check(bool success, const std::string& what) {
  if (!success) throw std::runtime_error(what + ": " + zmq_strerror(zmq_errno()));
}

}  // namespace

Connection::Connection(void* context, const std::string& address)
    : socket_(zmq_socket(context, ZMQ_DEALER), zmq_close), monitor_(zmq_socket(context, ZMQ_PAIR), zmq_close) {
  check(socket_ && monitor_, "no socket");
  const auto set = [this](int option, int value) { zmq_setsockopt(socket(), option, &value, sizeof value); };
  set(ZMQ_LINGER, 0);
  set(ZMQ_IMMEDIATE, 1);
  set(ZMQ_RECONNECT_IVL, 100);
  set(ZMQ_RECONNECT_IVL_MAX, 2000);
  const int none = 0;
  zmq_setsockopt(monitor(), ZMQ_LINGER, &none, sizeof none);

  static unsigned number = 0;
  const std::string events = "inproc://monitor-" + std::to_string(++number);
  check(zmq_socket_monitor(socket(), events.c_str(), ZMQ_EVENT_DISCONNECTED) == 0, "no monitor");
  check(zmq_connect(monitor(), events.c_str()) == 0, "no monitor");
  check(zmq_connect(socket(), address.c_str()) == 0, address);
}

Connection::~Connection() {
  // Before its other end is closed: the thread of libzmq would wait for ever to tell an event that nobody reads.
  zmq_socket_monitor(socket(), nullptr, 0);
}

void Connection::send(const std::function<void(Message::Builder)>& fill, std::string payload) {
  capnp::MallocMessageBuilder builder;
  fill(builder.initRoot<Message>());
  outgoing_.push_back({capnp::messageToFlatArray(builder), std::move(payload)});
  if (outgoing_.size() == 1) flush();
}

void Connection::flush() {
  while (!outgoing_.empty()) {
    const auto& [header, payload] = outgoing_.front();
    const auto bytes = header.asBytes();
    const int more = payload.empty() ? 0 : ZMQ_SNDMORE;
    if (zmq_send(socket(), bytes.begin(), bytes.size(), ZMQ_DONTWAIT | more) < 0) return;
    // libzmq takes the rest of a message that it has begun.
    if (more != 0) zmq_send(socket(), payload.data(), payload.size(), 0);
    outgoing_.pop_front();
  }
}

std::optional<Received> Connection::receive() {
  Received received;
  for (std::size_t count = 1;; ++count) {
    auto frame = std::make_shared<Frame>();
    // The first frame comes with all others: libzmq shows whole messages.
    if (zmq_msg_recv(&frame->message, socket(), ZMQ_DONTWAIT) < 0) return std::nullopt;
    const auto view = frame->view();
    if (count == 1 && view.size() % sizeof(capnp::word) == 0) {
      // Copied, because a frame of libzmq need not begin at the address of a word.
      received.header = kj::heapArray<capnp::word>(view.size() / sizeof(capnp::word));
      std::memcpy(received.header.begin(), view.data(), view.size());
    } else if (count == 2) {
      received.payload = {frame, view};
    } else if (count > 2) {
      received.header = nullptr;
    }
    if (zmq_msg_more(&frame->message) == 0) return received;
  }
}

bool Connection::ended() {
  bool found = false;
  for (;;) {
    Frame event, address;
    if (zmq_msg_recv(&event.message, monitor(), ZMQ_DONTWAIT) < 0) return found;
    zmq_msg_recv(&address.message, monitor(), 0);
    found = true;
  }
}

void Connection::linger(int milliseconds) {
  zmq_setsockopt(socket(), ZMQ_LINGER, &milliseconds, sizeof milliseconds);
}

}  // namespace worker

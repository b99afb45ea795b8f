// One connection to the scheduler: a DEALER of libzmq, its monitor, and what waits to be sent.
//
// Rules: frames as in protocol-spec/transport.md; nothing here blocks; a connection that ended is never used again.
#pragma once

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <zmq.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "message.capnp.h"
#include "runner.hpp"

namespace worker {

struct Received {
  kj::Array<capnp::word> header;
  Bytes payload;
};

class Connection {
 public:
  // Begins to connect; libzmq goes on trying, ever less often, until it has. Throws std::runtime_error for an address
  // that is none.
  Connection(void* context, const std::string& address);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  void send(const std::function<void(Message::Builder)>& fill, std::string payload = {});
  // Hands over to libzmq what it takes.
  void flush();
  bool empty() const { return outgoing_.empty(); }
  // The next message. Of one that has other than one or two frames, or whose header is not made of words, the header is
  // empty.
  std::optional<Received> receive();
  // True once, when the connection has ended.
  bool ended();
  // How long libzmq may go on sending when this is closed.
  void linger(int milliseconds);

  void* socket() const { return socket_.get(); }
  void* monitor() const { return monitor_.get(); }

 private:
  struct Outgoing {
    kj::Array<capnp::word> header;
    std::string payload;
  };
  using Socket = std::unique_ptr<void, int (*)(void*)>;

  Socket socket_;
  Socket monitor_;
  std::deque<Outgoing> outgoing_;
};

}  // namespace worker

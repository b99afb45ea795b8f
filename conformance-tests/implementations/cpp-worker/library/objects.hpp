// The objects of one session: those that the scheduler announced, and the large results that this worker makes.
//
// Rules: protocol-spec/objects.md. Content is got when a task needs it, not before; whoever holds Bytes keeps them,
// whatever happens to the object. A session that ends takes its Objects with it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "connection.hpp"

namespace worker {

class Objects {
 public:
  // Told when the content of an object that was needed is here, or (without content) cannot be had.
  using Arrived = std::function<void(std::uint64_t object, std::optional<Bytes> content)>;
  // Told when the scheduler has fetched all of a result, or does not want it any more.
  using Fetched = std::function<void(std::uint64_t object)>;

  Objects(Connection& connection, Welcome::Reader welcome, bool share, Arrived arrived, Fetched fetched);

  bool shares() const { return !directory_.empty(); }
  void instruct(ObjectInstruction::Reader instruction, const Bytes& payload);
  void answer(ObjectRequest::Reader request);
  void take(ObjectResponse::Reader response, const Bytes& payload);

  bool knows(std::uint64_t object) const { return announced_.count(object) != 0; }
  // The content if it is here; else `arrived` is called later. The object must be known. Throws std::exception when
  // there is no memory for it.
  std::optional<Bytes> need(std::uint64_t object);

  // Makes an object of a result; `remote` says that `fetched` will be called.
  struct Made {
    std::uint64_t id;
    bool remote;
  };
  Made make(const Bytes& result, const std::string& codec);

 private:
  struct Announced {
    std::uint64_t size = 0;
    ObjectStorage storage = ObjectStorage::INLINE;
    std::optional<Bytes> content;
    // While it is fetched:
    std::shared_ptr<std::string> buffer;
    std::map<std::uint64_t, std::uint32_t> asked;  // offset and length of what is not answered
    std::uint64_t next_offset = 0;
    std::uint64_t received = 0;
  };

  void ask(std::uint64_t id, Announced& object);
  void request(std::uint64_t id, Announced& object, std::uint64_t offset, std::uint32_t length);
  void create(ObjectInstruction::Reader instruction, const Bytes& payload);
  void remove(std::uint64_t id);
  std::optional<Bytes> map_file(std::uint64_t id, std::uint64_t size) const;
  bool write_file(std::uint64_t id, std::string_view content) const;
  std::string path(std::uint64_t id) const;

  Connection& connection_;
  Arrived arrived_;
  Fetched fetched_;
  std::string directory_;  // empty: not shared
  std::uint64_t session_;
  std::uint32_t chunk_bytes_;
  std::uint64_t made_ = 0;
  std::unordered_map<std::uint64_t, Announced> announced_;
  std::unordered_map<std::uint64_t, Bytes> offered_;  // results that the scheduler fetches
};

}  // namespace worker

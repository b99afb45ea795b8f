#include "objects.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

namespace worker {

namespace {

constexpr std::size_t requests_at_once = 4;
constexpr std::uint32_t usual_chunk_bytes = 1 << 20;

// The directory of a Welcome, if this process sees the same files; else nothing.
std::string shared_directory(Welcome::Reader welcome) {
  const std::string directory = welcome.getObjectDirectory();
  const auto token = welcome.getObjectDirectoryToken();
  if (directory.empty() || token.size() == 0 || access(directory.c_str(), W_OK | X_OK) != 0) return {};
  std::ifstream file(directory + "/token", std::ios::binary);
  const std::string found{std::istreambuf_iterator<char>(file), {}};
  return found == std::string(token.asChars().begin(), token.size()) ? directory : std::string();
}

}  // namespace

Objects::Objects(Connection& connection, Welcome::Reader welcome, bool share, Arrived arrived, Fetched fetched)
    : connection_(connection),
      arrived_(std::move(arrived)),
      fetched_(std::move(fetched)),
      directory_(share ? shared_directory(welcome) : std::string()),
      session_(welcome.getSession()),
      chunk_bytes_(welcome.getLimits().getChunkBytes()) {
  if (chunk_bytes_ == 0) chunk_bytes_ = usual_chunk_bytes;
}

void Objects::instruct(ObjectInstruction::Reader instruction, const Bytes& payload) {
  switch (instruction.getAction()) {
    case ObjectAction::CREATE:
      return create(instruction, payload);
    case ObjectAction::DELETE:
      for (const auto id : instruction.getIds()) remove(id);
      return;
    case ObjectAction::CLEAR: {
      std::vector<std::uint64_t> ids;
      for (const auto& [id, object] : announced_) ids.push_back(id);
      for (const auto id : ids) remove(id);
      return;
    }
    default:
      return;  // spill, or one of a newer version
  }
}

void Objects::create(ObjectInstruction::Reader instruction, const Bytes& payload) {
  const auto ids = instruction.getIds(), sizes = instruction.getSizes();
  const auto storages = instruction.getStorages();
  if (sizes.size() != ids.size() || storages.size() != ids.size()) return;
  std::size_t offset = 0;
  for (unsigned entry = 0; entry < ids.size(); ++entry) {
    Announced object;
    object.size = sizes[entry];
    object.storage = static_cast<ObjectStorage>(storages[entry]);
    if (object.storage == ObjectStorage::INLINE || object.size == 0) {
      if (object.size > payload.view.size() - offset) return;
      object.content = Bytes::of(std::string(payload.view.substr(offset, object.size)));
      offset += object.size;
    }
    announced_.insert_or_assign(ids[entry], std::move(object));
  }
}

void Objects::remove(std::uint64_t id) {
  if (offered_.erase(id) != 0) fetched_(id);
  const auto found = announced_.find(id);
  if (found == announced_.end()) return;
  const bool awaited = found->second.buffer != nullptr;
  announced_.erase(found);
  if (awaited) arrived_(id, std::nullopt);
}

std::optional<Bytes> Objects::need(std::uint64_t id) {
  Announced& object = announced_.at(id);
  if (!object.content && object.buffer == nullptr && object.storage == ObjectStorage::SHARED && shares())
    object.content = map_file(id, object.size);
  if (object.content) return object.content;
  if (object.buffer == nullptr) {
    object.buffer = std::make_shared<std::string>(object.size, '\0');
    ask(id, object);
  }
  return std::nullopt;
}

void Objects::request(std::uint64_t id, Announced& object, std::uint64_t offset, std::uint32_t length) {
  object.asked[offset] = length;
  connection_.send([&](Message::Builder message) {
    auto request = message.initObjectRequest();
    request.setId(id);
    request.setOffset(offset);
    request.setLength(length);
  });
}

void Objects::ask(std::uint64_t id, Announced& object) {
  while (object.next_offset < object.size && object.asked.size() < requests_at_once) {
    const auto length = static_cast<std::uint32_t>(std::min<std::uint64_t>(chunk_bytes_, object.size - object.next_offset));
    request(id, object, object.next_offset, length);
    object.next_offset += length;
  }
}

void Objects::take(ObjectResponse::Reader response, const Bytes& payload) {
  const auto id = response.getId();
  const auto found = announced_.find(id);
  if (found == announced_.end()) return;
  Announced& object = found->second;
  const auto offset = response.getOffset();
  const auto asked = object.asked.find(offset);
  if (asked == object.asked.end()) return;
  const auto length = asked->second;
  object.asked.erase(asked);
  const auto got = payload.view.size();
  if (response.getStatus() != ObjectResponseStatus::OK || got == 0 || got > length) {
    remove(id);  // it cannot be had: whoever needs it is told
    return;
  }
  payload.view.copy(object.buffer->data() + offset, got);
  object.received += got;
  if (got < length) request(id, object, offset + got, static_cast<std::uint32_t>(length - got));
  ask(id, object);
  if (object.received < object.size) return;
  object.content = Bytes{object.buffer, *object.buffer};
  object.buffer.reset();
  arrived_(id, object.content);
}

Objects::Made Objects::make(const Bytes& result, const std::string& codec) {
  const std::uint64_t id = session_ << 40 | ++made_;
  const bool shared = shares() && write_file(id, result.view);
  const std::uint64_t size = result.view.size();
  if (!shared) offered_.emplace(id, result);
  connection_.send([&](Message::Builder message) {
    auto instruction = message.initObjectInstruction();
    instruction.setAction(ObjectAction::CREATE);
    instruction.setIds(kj::arrayPtr(&id, 1));
    instruction.setSizes(kj::arrayPtr(&size, 1));
    const auto storage = static_cast<std::uint8_t>(shared ? ObjectStorage::SHARED : ObjectStorage::REMOTE);
    instruction.setStorages(kj::arrayPtr(&storage, 1));
    instruction.setCodec(codec);
  });
  return {id, !shared};
}

void Objects::answer(ObjectRequest::Reader request) {
  const auto id = request.getId(), offset = request.getOffset();
  const auto found = offered_.find(id);
  const bool there = found != offered_.end() && offset <= found->second.view.size();
  std::string part;
  if (there) part = found->second.view.substr(offset, std::min(request.getLength(), chunk_bytes_));
  const std::uint64_t end = offset + part.size();
  connection_.send(
      [&](Message::Builder message) {
        auto response = message.initObjectResponse();
        response.setId(id);
        response.setOffset(offset);
        response.setStatus(there ? ObjectResponseStatus::OK : ObjectResponseStatus::MISSING);
        if (there) response.setSize(found->second.view.size());
      },
      std::move(part));
  // The scheduler keeps what it has fetched, and asks in order: after the last byte it needs nothing more of this.
  if (there && end == found->second.view.size()) {
    offered_.erase(found);
    fetched_(id);
  }
}

std::string Objects::path(std::uint64_t id) const {
  char name[17];
  std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(id));
  return directory_ + "/" + name;
}

std::optional<Bytes> Objects::map_file(std::uint64_t id, std::uint64_t size) const {
  if (size == 0) return Bytes{};
  const Descriptor file(open(path(id).c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (file.number() < 0 || fstat(file.number(), &status) != 0 || static_cast<std::uint64_t>(status.st_size) < size)
    return std::nullopt;
  void* memory = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.number(), 0);
  if (memory == MAP_FAILED) return std::nullopt;
  const std::shared_ptr<const void> owner(memory, [size](const void* mapped) { munmap(const_cast<void*>(mapped), size); });
  return Bytes{owner, {static_cast<const char*>(memory), size}};
}

bool Objects::write_file(std::uint64_t id, std::string_view content) const {
  const std::string target = path(id);
  const std::string draft = directory_ + "/new-" + target.substr(directory_.size() + 1);
  {
    const Descriptor file(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.number() < 0) return false;
    while (!content.empty()) {
      const auto written = write(file.number(), content.data(), content.size());
      if (written <= 0) break;
      content.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  if (content.empty() && rename(draft.c_str(), target.c_str()) == 0) return true;
  unlink(draft.c_str());  // no room, say: the scheduler fetches it instead
  return false;
}

}  // namespace worker

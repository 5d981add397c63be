// /dev/infiniband/rdma_cm for the stock librdmacm: the commands that it writes go to the broker, which answers them and
// has the CM (src/broker/rdmacm/program.ts). The file that a program gets is a stream of events: it can wait for it.
#include "rdmacm.h"

#include <fcntl.h>
#include <pthread.h>
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "abi.h"
#include "adapter.h"
#include "core/fd.h"
#include "next.h"

namespace {

/// File descriptors from this number on are not looked for: librdmacm opens one for each event channel.
constexpr size_t kMaxFds = 4096;
/// Errno and length of an answer.
constexpr size_t kAnswerHead = 8;

/// An event as the broker sends it.
struct Record {
  /// Number of the id among whose events it counts.
  uint32_t counted;
  uint8_t event[sizeof(rdma_ucm_event_resp)];
};

struct File {
  ~File() { CloseFd(commands); }

  int commands = -1;
  /// The file of the events, by which a number that was used again is known.
  ino_t inode = 0;
  /// One command after the other.
  std::mutex commanding;
  /// Protects the record that has arrived in part.
  std::mutex receiving;
  Record record{};
  size_t recordBytes = 0;
};

using FileRef = std::shared_ptr<File>;

/// The host's fstat: the library's own asks whether a descriptor is one of these files.
int HostFstat(int fd, struct stat* status) {
  static const auto next = Next<int (*)(int, struct stat*)>("fstat");
  return next(fd, status);
}

bool IsSame(int fd, const File& file) {
  struct stat status {};
  return HostFstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) && status.st_ino == file.inode;
}

/// The files by descriptor.
class Files {
 public:
  /// Returns the file of rdma_cm with this descriptor, or null.
  FileRef Of(int fd) {
    if (fd < 0 || static_cast<size_t>(fd) >= kMaxFds || !isUsed_[fd].load(std::memory_order_acquire)) return nullptr;
    const Adapter::Lock lock(mutex_);
    FileRef& file = files_[fd];
    if (file == nullptr || IsSame(fd, *file)) return file;
    // the program has closed it
    isUsed_[fd].store(false, std::memory_order_release);
    file.reset();
    return nullptr;
  }

  void Set(int fd, FileRef file) {
    const Adapter::Lock lock(mutex_);
    files_[fd] = std::move(file);
    isUsed_[fd].store(true, std::memory_order_release);
  }

  static Files& All() {
    // never destroyed: threads of the program may outlive main
    static auto* files = new Files;
    return *files;
  }

 private:
  std::mutex mutex_;
  std::array<FileRef, kMaxFds> files_;
  /// Whether there may be one: most descriptors of a program are other files.
  std::array<std::atomic<bool>, kMaxFds> isUsed_{};
};

/// Events that programs have got, by the numbers of ids and memberships that are not destroyed.
struct Reported {
  std::mutex mutex;
  std::map<uint32_t, uint32_t> counts;

  static Reported& Of() {
    static auto* reported = new Reported;
    return *reported;
  }
  void Add(uint32_t id) {
    const Adapter::Lock lock(mutex);
    counts.emplace(id, 0);
  }
  uint32_t Take(uint32_t id) {
    const Adapter::Lock lock(mutex);
    const auto found = counts.find(id);
    if (found == counts.end()) return 0;
    const uint32_t count = found->second;
    counts.erase(found);
    return count;
  }
  uint32_t Get(uint32_t id) {
    const Adapter::Lock lock(mutex);
    const auto found = counts.find(id);
    return found == counts.end() ? 0 : found->second;
  }
  /// @returns false if the id is destroyed
  bool Count(uint32_t id) {
    const Adapter::Lock lock(mutex);
    const auto found = counts.find(id);
    if (found == counts.end()) return false;
    found->second++;
    return true;
  }
};

bool SendAll(int fd, const uint8_t* bytes, size_t count) {
  while (count > 0) {
    const ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes += sent;
    count -= static_cast<size_t>(sent);
  }
  return true;
}

bool ReceiveAll(int fd, void* to, size_t count) {
  auto* bytes = static_cast<uint8_t*>(to);
  while (count > 0) {
    const ssize_t received = recv(fd, bytes, count, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    bytes += received;
    count -= static_cast<size_t>(received);
  }
  return true;
}

/// A command as librdmacm writes it.
struct Command {
  rdma_ucm_cmd_hdr head;
  const uint8_t* body;

  template <typename Value>
  Value At(size_t at) const {
    Value value;
    memcpy(&value, body + at, sizeof value);
    return value;
  }
};

/// Sends a command. @returns 0 or an errno; ENODEV if the broker has ended
int Ask(File& file, const Command& command, std::vector<uint8_t>& response) {
  std::vector<uint8_t> bytes(sizeof command.head + command.head.in);
  memcpy(bytes.data(), &command.head, sizeof command.head);
  memcpy(bytes.data() + sizeof command.head, command.body, command.head.in);
  if (command.head.cmd == RDMA_USER_CM_CMD_SET_OPTION) {
    const auto option = command.At<rdma_ucm_set_option>(0);
    if (option.optlen > 64) return EINVAL;
    const auto* value = reinterpret_cast<const uint8_t*>(option.optval);
    bytes.insert(bytes.end(), value, value + option.optlen);
  }
  const Adapter::Lock lock(file.commanding);
  struct {
    int32_t error;
    uint32_t length;
  } head;
  static_assert(sizeof head == kAnswerHead);
  if (!SendAll(file.commands, bytes.data(), bytes.size())) return ENODEV;
  if (!ReceiveAll(file.commands, &head, sizeof head)) return ENODEV;
  response.resize(head.length);
  return ReceiveAll(file.commands, response.data(), response.size()) ? head.error : ENODEV;
}

void Destroy(File& file, uint32_t id) {
  rdma_ucm_destroy_id body{};
  body.id = id;
  std::vector<uint8_t> response;
  Ask(file, {{RDMA_USER_CM_CMD_DESTROY_ID, sizeof body, 0}, reinterpret_cast<uint8_t*>(&body)}, response);
}

/// Receives an event, as far as it has arrived. @returns 0, or an errno: EAGAIN
int ReceiveEvent(int fd, File& file, Record& record) {
  const Adapter::Lock lock(file.receiving);
  while (file.recordBytes < sizeof record) {
    auto* at = reinterpret_cast<uint8_t*>(&file.record) + file.recordBytes;
    const ssize_t received = recv(fd, at, sizeof record - file.recordBytes, MSG_DONTWAIT);
    if (received == 0) return ENODEV;
    if (received < 0) return errno;
    file.recordBytes += static_cast<size_t>(received);
  }
  record = file.record;
  file.recordBytes = 0;
  return 0;
}

/// The file of a thread that asks for an event, which keeps it open: as in the kernel, the thread goes on waiting when
/// another one closes it.
struct Held {
  FileRef& file;
  int fd;
};

/// A cancelled thread leaves without the destructors of its frames.
void EndCancelledWait(void* of) {
  auto* held = static_cast<Held*>(of);
  CloseFd(held->fd);
  held->file.reset();
}

/// Takes the next event, whatever its id. @param waits for it, else EAGAIN
int NextEvent(Held& held, bool waits, Record& record) {
  int refused;
  pthread_cleanup_push(EndCancelledWait, &held);
  while ((refused = ReceiveEvent(held.fd, *held.file, record)) == EAGAIN && waits) {
    refused = Adapter::Get()->Wait(held.fd);
    if (refused != 0) break;
  }
  pthread_cleanup_pop(0);
  return refused;
}

/// Takes an event of an id that exists. Those of ids that are destroyed are left out, as in the kernel.
int TakeEvent(Held& held, bool waits, Record& record) {
  for (;;) {
    if (const int refused = NextEvent(held, waits, record)) return refused;
    const auto& event = *reinterpret_cast<const rdma_ucm_event_resp*>(record.event);
    const bool isCounted = Reported::Of().Count(record.counted);
    const bool isRequest = event.event == 4;  // RDMA_CM_EVENT_CONNECT_REQUEST of rdma/rdma_cma.h
    if (isRequest && isCounted) Reported::Of().Add(event.id);
    if (isRequest && !isCounted) Destroy(*held.file, event.id);
    if (isCounted) return 0;
  }
}

/// Takes an event, and waits for it unless the file does not block. @returns 0 or an errno
int GetEvent(int fd, FileRef& file, Record& record) {
  Held held{file, fcntl(fd, F_DUPFD_CLOEXEC, 0)};
  if (held.fd < 0) return errno;
  const bool waits = (fcntl(held.fd, F_GETFL) & O_NONBLOCK) == 0;
  const int refused = IsSame(held.fd, *file) ? TakeEvent(held, waits, record) : EBADF;
  CloseFd(held.fd);
  return refused;
}

/// Offset of the address of the response in a command; SIZE_MAX: it has none.
size_t ResponseAt(uint32_t command) {
  switch (command) {
    case RDMA_USER_CM_CMD_CREATE_ID:
      return offsetof(rdma_ucm_create_id, response);
    case RDMA_USER_CM_CMD_DESTROY_ID:
    case RDMA_USER_CM_CMD_QUERY_ROUTE:
    case RDMA_USER_CM_CMD_INIT_QP_ATTR:
    case RDMA_USER_CM_CMD_GET_EVENT:
    case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
    case RDMA_USER_CM_CMD_LEAVE_MCAST:
    case RDMA_USER_CM_CMD_MIGRATE_ID:
    case RDMA_USER_CM_CMD_QUERY:
    case RDMA_USER_CM_CMD_JOIN_MCAST:
      return 0;
    default:
      return SIZE_MAX;
  }
}

uint32_t FirstWord(const std::vector<uint8_t>& bytes) {
  uint32_t word = 0;
  memcpy(&word, bytes.data(), std::min(bytes.size(), sizeof word));
  return word;
}

/// Executes a command. @returns 0 or an errno
int Execute(int fd, FileRef& file, const Command& command) {
  const size_t responseAt = ResponseAt(command.head.cmd);
  if (responseAt != SIZE_MAX && command.head.in < responseAt + 8) return EINVAL;
  std::vector<uint8_t> response;
  int refused;
  if (command.head.cmd == RDMA_USER_CM_CMD_GET_EVENT) {
    Record record{};
    refused = GetEvent(fd, file, record);
    response.assign(record.event, record.event + sizeof record.event);
  } else {
    refused = Ask(*file, command, response);
  }
  if (refused != 0) return refused;
  Reported& reported = Reported::Of();
  uint32_t word = FirstWord(response);
  switch (command.head.cmd) {
    case RDMA_USER_CM_CMD_CREATE_ID:
    case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
    case RDMA_USER_CM_CMD_JOIN_MCAST:
      reported.Add(word);
      break;
    case RDMA_USER_CM_CMD_DESTROY_ID:
    case RDMA_USER_CM_CMD_LEAVE_MCAST:
      word = reported.Take(command.At<rdma_ucm_destroy_id>(0).id);
      memcpy(response.data(), &word, sizeof word);
      break;
    case RDMA_USER_CM_CMD_MIGRATE_ID:
      word = reported.Get(command.At<rdma_ucm_migrate_id>(0).id);
      memcpy(response.data(), &word, sizeof word);
      break;
    default:
      break;
  }
  if (responseAt == SIZE_MAX) return 0;
  auto* to = reinterpret_cast<void*>(command.At<uint64_t>(responseAt));
  memcpy(to, response.data(), std::min<size_t>(command.head.out, response.size()));
  return 0;
}

}  // namespace

int OpenRdmaCm(int flags) {
  Adapter* adapter = Adapter::Get();
  if (adapter == nullptr) return -1;
  int commands = -1, events = -1;
  if (const int refused = adapter->OpenRdmaCm(commands, events)) {
    errno = refused;
    return -1;
  }
  const auto file = std::make_shared<File>();
  file->commands = commands;
  struct stat status {};
  const bool isKnown = static_cast<size_t>(events) < kMaxFds && HostFstat(events, &status) == 0;
  if (!isKnown) {
    CloseFd(events);
    errno = EMFILE;
    return -1;
  }
  file->inode = status.st_ino;
  fcntl(commands, F_SETFL, 0);
  fcntl(events, F_SETFL, flags & O_NONBLOCK);
  if ((flags & O_CLOEXEC) == 0) fcntl(events, F_SETFD, 0);
  Files::All().Set(events, file);
  return events;
}

bool IsRdmaCm(int fd) { return Files::All().Of(fd) != nullptr; }

VERBS_API ssize_t write(int fd, const void* bytes, size_t count) {
  static const auto next = Next<ssize_t (*)(int, const void*, size_t)>("write");
  FileRef file = Files::All().Of(fd);
  if (file == nullptr) return next(fd, bytes, count);
  Command command{};
  if (count >= sizeof command.head) memcpy(&command.head, bytes, sizeof command.head);
  command.body = static_cast<const uint8_t*>(bytes) + sizeof command.head;
  const bool isWhole = count >= sizeof command.head && command.head.in + sizeof command.head <= count;
  const int refused = isWhole ? Execute(fd, file, command) : EINVAL;
  if (refused == 0) return static_cast<ssize_t>(count);
  errno = refused;
  return -1;
}

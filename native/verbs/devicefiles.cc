#include "devicefiles.h"

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>

#include "core/fd.h"
#include "device.h"
#include "port.h"
#include "processfolder.h"
#include "rdmacm.h"

namespace {

namespace fs = std::filesystem;

/// The paths that the process shows in place of the host's.
constexpr std::array<std::string_view, 6> kShown = {
    "/sys/class/infiniband",
    "/sys/class/infiniband_mad",
    "/sys/class/infiniband_verbs",
    "/sys/devices/virtual/infiniband",
    "/sys/devices/virtual/infiniband_verbs",
    "/dev/infiniband",
};
/// A path that no file has.
constexpr const char* kNoFile = "/proc/there is none";
/// Numbers of a character device, as the kernel's uverbs has them.
constexpr unsigned kVerbsMajor = 231, kVerbsMinor = 192;

std::string DeviceFolder() { return std::string("/sys/devices/virtual/infiniband/") + kDevice; }

std::string PortFolder() { return DeviceFolder() + "/ports/" + std::to_string(kPortNumber); }

/// The port that rules of faults show in place of the interface's. Never destroyed: threads may outlive main.
struct ShownPort {
  std::mutex mutex;
  std::optional<Port> port;

  static ShownPort& Get() {
    static auto* shown = new ShownPort;
    return *shown;
  }
};

/// @returns false if there is none
bool FindPort(Port& port) {
  {
    ShownPort& shown = ShownPort::Get();
    const std::lock_guard<std::mutex> lock(shown.mutex);
    if (shown.port) {
      port = *shown.port;
      return true;
    }
  }
  std::string why;
  return port.Find(why);
}

/// Returns bytes as sysfs has them: groups of four digits.
template <size_t size>
std::string GroupsText(const uint8_t (&bytes)[size]) {
  std::string text;
  for (size_t i = 0; i < size; i += 2) {
    char group[6];
    snprintf(group, sizeof group, "%s%02x%02x", i == 0 ? "" : ":", bytes[i], bytes[i + 1]);
    text += group;
  }
  return text;
}

std::string GuidText(const Port& port) {
  uint8_t guid[8];
  port.Guid(guid);
  return GroupsText(guid);
}

/// Returns a code as sysfs has it, with its name.
std::string CodeText(unsigned code, const char* name) { return std::to_string(code) + ": " + name; }

std::string NumbersText(unsigned major, unsigned minor) { return std::to_string(major) + ":" + std::to_string(minor); }

class DeviceFiles {
 public:
  /// Returns the files of the process, and makes them if there are none. @returns null if that is not possible
  static DeviceFiles* Get();
  /// Returns the files that Get has made; null if there are none.
  static DeviceFiles* Made() { return made.load(std::memory_order_acquire); }

  const std::string& Root() const { return folder_.Path(); }
  /// Shows another state and another GID table.
  void Update(const Port& port) { WriteState(port); }
  /// Returns the numbers of the character device for which a file stands, or 0.
  dev_t DeviceOf(dev_t device, ino_t inode) const {
    if (device != device_) return 0;
    if (inode == verbsInode_) return makedev(kVerbsMajor, kVerbsMinor);
    return inode == rdmaCmInode_ ? makedev(kRdmaCmMajor, kRdmaCmMinor) : 0;
  }

 private:
  static std::atomic<DeviceFiles*> made;

  static void RemoveAtExit();
  static DeviceFiles* Make();
  bool WriteAll();
  void WriteDevice(const Port& port);
  void WriteState(const Port& port);
  void WritePort(const Port& port);
  void Write(const std::string& path, const std::string& text);
  void Link(const std::string& path, const std::string& to);
  void AddFolder(const std::string& path);
  ino_t InodeOf(const std::string& path);

  ProcessFolder folder_;
  /// The files that these replace, which are never destroyed: another thread may look at them.
  const DeviceFiles* before_ = nullptr;
  dev_t device_ = 0;
  ino_t verbsInode_ = 0, rdmaCmInode_ = 0;
  bool isWhole_ = true;
};

std::atomic<DeviceFiles*> DeviceFiles::made;

DeviceFiles* DeviceFiles::Get() {
  DeviceFiles* present = Made();
  if (present != nullptr && present->folder_.Exists()) return present;
  DeviceFiles* files = Make();
  if (files == nullptr) return nullptr;
  files->before_ = present;
  if (made.compare_exchange_strong(present, files)) return files;
  delete files;
  return present;
}

DeviceFiles* DeviceFiles::Make() {
  static const int atExit = atexit(RemoveAtExit);
  auto* files = new DeviceFiles;
  if (atExit == 0 && files->folder_.Make() && files->WriteAll()) return files;
  delete files;
  return nullptr;
}

void DeviceFiles::RemoveAtExit() {
  if (DeviceFiles* files = Made()) files->folder_.Remove();
}

bool DeviceFiles::WriteAll() {
  for (const std::string_view each : kShown) AddFolder(std::string(each));
  Write("/sys/class/infiniband_verbs/abi_version", "6");
  Write("/sys/class/infiniband_mad/abi_version", "5");
  Write("/dev/infiniband/rdma_cm", "");
  const std::string verbs = std::string("/dev/infiniband/") + kVerbsFile;
  Port port;
  if (FindPort(port)) {
    Write(verbs, "");
    WriteDevice(port);
    WritePort(port);
  }
  struct stat status {};
  if (lstat(Root().c_str(), &status) == 0) device_ = status.st_dev;
  rdmaCmInode_ = InodeOf("/dev/infiniband/rdma_cm");
  verbsInode_ = InodeOf(verbs);
  return isWhole_;
}

void DeviceFiles::WriteDevice(const Port& port) {
  const std::string name = kDevice, verbs = kVerbsFile, device = DeviceFolder();
  Write(device + "/node_type", "1: CA");
  Write(device + "/node_guid", GuidText(port));
  Write(device + "/sys_image_guid", GuidText(port));
  Write(device + "/node_desc", name);
  Write(device + "/fw_ver", WASM_ROCE_VERSION);
  Write(device + "/parent", port.Name());
  Link("/sys/class/infiniband/" + name, "../../devices/virtual/infiniband/" + name);
  // where the interface is: an address of PCI, a NUMA node
  char place[PATH_MAX];
  const std::string ofInterface = "/sys/class/net/" + port.Name() + "/device";
  if (realpath(ofInterface.c_str(), place) != nullptr) Link(device + "/device", place);
  const std::string file = "/sys/devices/virtual/infiniband_verbs/" + verbs;
  Write(file + "/abi_version", "1");
  Write(file + "/ibdev", name);
  Write(file + "/dev", NumbersText(kVerbsMajor, kVerbsMinor));
  Link("/sys/class/infiniband_verbs/" + verbs, "../../devices/virtual/infiniband_verbs/" + verbs);
  Write("/sys/class/infiniband_mad/umad0/ibdev", name);
  Write("/sys/class/infiniband_mad/umad0/port", std::to_string(kPortNumber));
}

void DeviceFiles::WritePort(const Port& port) {
  const std::string folder = PortFolder();
  Write(folder + "/rate", kRate);
  Write(folder + "/link_layer", "Ethernet");
  char capabilities[16];
  snprintf(capabilities, sizeof capabilities, "0x%08x", kPortCapabilities);
  Write(folder + "/cap_mask", capabilities);
  for (const char* each : {"/lid", "/sm_lid"}) Write(folder + each, "0x0");
  for (const char* each : {"/lid_mask_count", "/sm_sl"}) Write(folder + each, "0");
  Write(folder + "/pkeys/0", "0xffff");
  WriteState(port);
}

/// Writes what changes: the state of the port, and the GID table.
void DeviceFiles::WriteState(const Port& port) {
  const std::string folder = PortFolder();
  Write(folder + "/state", port.IsActive() ? CodeText(IBV_PORT_ACTIVE, "ACTIVE") : CodeText(IBV_PORT_DOWN, "DOWN"));
  Write(folder + "/phys_state", port.IsActive() ? CodeText(kLinkUp, "LinkUp") : CodeText(kDisabled, "Disabled"));
  for (const char* each : {"/gids", "/gid_attrs"}) {
    std::error_code error;
    fs::remove_all(Root() + folder + each, error);
  }
  for (size_t i = 0; i < port.Gids().size(); i++) {
    const std::string index = std::to_string(i);
    Write(folder + "/gids/" + index, GroupsText(port.Gids()[i].raw));
    Write(folder + "/gid_attrs/types/" + index, "RoCE v2");
    Write(folder + "/gid_attrs/ndevs/" + index, port.Name());
  }
}

void DeviceFiles::AddFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(Root() + path, error);
  if (error) isWhole_ = false;
}

void DeviceFiles::Write(const std::string& path, const std::string& text) {
  AddFolder(path.substr(0, path.rfind('/')));
  int fd = open((Root() + path).c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);
  const std::string line = text.empty() ? text : text + '\n';
  if (fd < 0 || write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) isWhole_ = false;
  CloseFd(fd);
}

void DeviceFiles::Link(const std::string& path, const std::string& to) {
  std::error_code error;
  fs::create_symlink(to, Root() + path, error);
  if (error) isWhole_ = false;
}

ino_t DeviceFiles::InodeOf(const std::string& path) {
  struct stat status {};
  return lstat((Root() + path).c_str(), &status) == 0 ? status.st_ino : 0;
}

/// Writes a path without repeated slashes and folders `.`. @returns its length; 0: it is too long
size_t Simplify(const char* path, char (&to)[PATH_MAX]) {
  size_t length = 0;
  while (*path != 0) {
    while (path[0] == '/' && (path[1] == '/' || (path[1] == '.' && (path[2] == '/' || path[2] == 0))))
      path += path[1] == '/' ? 1 : 2;
    if (*path == 0) break;
    if (length + 1 >= sizeof to) return 0;
    to[length++] = *path++;
  }
  to[length] = 0;
  return length;
}

bool IsShown(std::string_view path) {
  for (const std::string_view each : kShown) {
    if (path.substr(0, each.size()) != each) continue;
    if (path.size() == each.size() || path[each.size()] == '/') return true;
  }
  return false;
}

/// A function of its own, because the compiler takes it for granted that functions of files have a path.
[[gnu::noipa]] bool MayBeShown(const char* path) {
  return path != nullptr && path[0] == '/' && strstr(path, "infiniband") != nullptr;
}

}  // namespace

ShownPath::ShownPath(const char* path) : path_(path) {
  if (!MayBeShown(path)) return;
  const int before = errno;
  const size_t length = Simplify(path, room_);
  if (!IsShown({room_, length})) return;
  const DeviceFiles* files = DeviceFiles::Get();
  errno = before;
  // what the host has is not shown even then
  path_ = kNoFile;
  if (files == nullptr || files->Root().size() + length >= sizeof room_) return;
  memmove(room_ + files->Root().size(), room_, length + 1);
  memcpy(room_, files->Root().data(), files->Root().size());
  path_ = room_;
}

void ShowPort(const Port& port) {
  {
    ShownPort& shown = ShownPort::Get();
    const std::lock_guard<std::mutex> lock(shown.mutex);
    shown.port = port;
  }
  if (DeviceFiles* files = DeviceFiles::Made()) files->Update(port);
}

void HidePlace(char* path) {
  const DeviceFiles* files = DeviceFiles::Made();
  if (files == nullptr) return;
  const size_t length = files->Root().size();
  if (strncmp(path, files->Root().c_str(), length) == 0 && path[length] == '/')
    memmove(path, path + length, strlen(path + length) + 1);
}

void ShowDevice(struct stat& status) {
  const DeviceFiles* files = DeviceFiles::Made();
  if (files == nullptr || !S_ISREG(status.st_mode)) return;
  const dev_t device = files->DeviceOf(status.st_dev, status.st_ino);
  if (device == 0) return;
  status.st_mode = S_IFCHR | 0666;
  status.st_rdev = device;
}

void ShowDevice(struct statx& status) {
  const DeviceFiles* files = DeviceFiles::Made();
  if (files == nullptr || !S_ISREG(status.stx_mode)) return;
  const dev_t device = files->DeviceOf(makedev(status.stx_dev_major, status.stx_dev_minor), status.stx_ino);
  if (device == 0) return;
  status.stx_mode = S_IFCHR | 0666;
  status.stx_rdev_major = major(device);
  status.stx_rdev_minor = minor(device);
}

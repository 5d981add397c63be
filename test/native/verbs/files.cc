// The files of the device, as programs look for them.
#include <dirent.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <glob.h>
#include <infiniband/verbs.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "child.h"

namespace {

const std::string kDevice = "/sys/class/infiniband/wroce0";

/// A folder of this process for its files: other programs of the host have theirs elsewhere.
class OwnFolder {
 public:
  OwnFolder() {
    mkdtemp(path.data());
    setenv("TMPDIR", path.c_str(), 1);
  }
  ~OwnFolder() {
    std::error_code ignored;
    if (getpid() == creator_) std::filesystem::remove_all(path, ignored);
  }

  std::string path = "/tmp/wasm-roce-files-XXXXXX";

 private:
  const pid_t creator_ = getpid();
} ownFolder;

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  DIR* folder = opendir(path.c_str());
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder))
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("sysfs shows the device alone") {
  const std::vector<std::string> devices = {"wroce0"};
  CHECK(NamesIn("/sys/class/infiniband") == devices);
  CHECK(NamesIn("/sys//class/./infiniband/") == devices);
  CHECK(NamesIn("/sys/class/infiniband_verbs") == std::vector<std::string>{"abi_version", "uverbs0"});
  CHECK(NamesIn("/dev/infiniband") == std::vector<std::string>{"rdma_cm", "uverbs0"});
  CHECK(access("/sys/class/infiniband/mlx5_0", F_OK) == -1);
  CHECK(errno == ENOENT);
}

TEST_CASE("sysfs says of the device and its port what the functions say") {
  ibv_device** list = ibv_get_device_list(nullptr);
  ibv_context* context = ibv_open_device(list[0]);
  REQUIRE(context != nullptr);
  ibv_port_attr port;
  REQUIRE(ibv_query_port(context, 1, &port) == 0);
  const std::string folder = kDevice + "/ports/1";
  CHECK(TextOf(kDevice + "/node_type") == "1: CA\n");
  CHECK(TextOf(folder + "/state").substr(0, 2) == std::to_string(port.state) + ":");
  CHECK(TextOf(folder + "/link_layer") == "Ethernet\n");
  CHECK(NamesIn(folder + "/gids").size() == static_cast<size_t>(port.gid_tbl_len));
  ibv_gid gid;
  REQUIRE(ibv_query_gid(context, 1, 0, &gid) == 0);
  char text[8];
  snprintf(text, sizeof text, "%02x%02x\n", gid.raw[14], gid.raw[15]);
  CHECK(TextOf(folder + "/gids/0").substr(35) == text);
  CHECK(TextOf(folder + "/gid_attrs/types/0") == "RoCE v2\n");
  CHECK(TextOf(folder + "/gid_attrs/ndevs/0") == "lo\n");
  CHECK(TextOf(std::string(list[0]->dev_path) + "/ibdev") == "wroce0\n");
  ibv_close_device(context);
  ibv_free_device_list(list);
}

TEST_CASE("realpath, readlink and glob return the paths that programs know") {
  char* place = realpath(kDevice.c_str(), nullptr);
  CHECK(std::string(place) == "/sys/devices/virtual/infiniband/wroce0");
  free(place);
  char link[256] = "";
  REQUIRE(readlink(kDevice.c_str(), link, sizeof link - 1) > 0);
  CHECK(std::string(link) == "../../devices/virtual/infiniband/wroce0");
  glob_t found{};
  REQUIRE(glob("/sys/class/infiniband/*", 0, nullptr, &found) == 0);
  REQUIRE(found.gl_pathc == 1);
  CHECK(std::string(found.gl_pathv[0]) == kDevice);
  globfree(&found);
  CHECK(std::filesystem::is_directory(kDevice + "/ports/1"));
}

TEST_CASE("the files of /dev/infiniband are character devices to all functions") {
  for (const char* path : {"/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"}) {
    CAPTURE(path);
    struct stat status {};
    CHECK(stat(path, &status) == 0);
    CHECK(S_ISCHR(status.st_mode));
    CHECK(status.st_rdev != 0);
    struct statx extended {};
    CHECK(statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &extended) == 0);
    CHECK(S_ISCHR(extended.stx_mode));
    CHECK(makedev(extended.stx_rdev_major, extended.stx_rdev_minor) == status.st_rdev);
    CHECK(std::filesystem::is_character_file(path));
    CHECK(access(path, R_OK | W_OK) == 0);
  }
  const int fd = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
  REQUIRE(fd >= 0);
  struct stat status {};
  CHECK(fstat(fd, &status) == 0);
  CHECK(S_ISCHR(status.st_mode));
  close(fd);
}

TEST_CASE("a child has the files of its parent, and removes them only if it is the last") {
  REQUIRE(NamesIn("/sys/class/infiniband").size() == 1);
  const std::vector<std::string> before = NamesIn(ownFolder.path);
  CHECK(InChild([] { exit(NamesIn("/sys/class/infiniband").size() == 1 ? 0 : 1); }) == 0);
  CHECK(NamesIn(ownFolder.path) == before);
  CHECK(NamesIn("/sys/class/infiniband").size() == 1);
}

TEST_CASE("the next process removes the files of one that was killed") {
  // a child that makes files of its own, because those of its parent are gone, and is killed
  CHECK(InChild([] {
          for (const std::string& name : NamesIn(ownFolder.path))
            std::filesystem::remove_all(ownFolder.path + "/" + name);
          if (NamesIn("/sys/class/infiniband").size() != 1) exit(1);
          raise(SIGKILL);
        }) == SIGKILL);
  const std::vector<std::string> left = NamesIn(ownFolder.path);
  REQUIRE(left.size() == 1);
  CHECK(NamesIn("/sys/class/infiniband").size() == 1);
  CHECK(NamesIn(ownFolder.path) != left);
  CHECK(NamesIn(ownFolder.path).size() == 1);
}

TEST_CASE("other paths stay as they are") {
  CHECK(NamesIn("/sys/class").size() > 1);
  CHECK(TextOf("/proc/self/comm") == "verbs_tests\n");
  CHECK(open("/sys/class/infinibandwidth", O_RDONLY) == -1);
  CHECK(errno == ENOENT);
}

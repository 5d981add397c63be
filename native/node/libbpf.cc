// The functions of libbpf that the XDP program needs. libbpf is opened when it is first asked for, so that everything
// else works without it. Results are those of libbpf: 0, an id or a file descriptor, or -errno.
#include <dlfcn.h>
#include <linux/bpf.h>
#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "arguments.h"
#include "exports.h"
#include "fds.h"

namespace {

constexpr char kLibrary[] = "libbpf.so.1";
constexpr uint32_t kMaxMaps = 16;
/// BPF_LINK_TYPE_XDP, which the headers of older distributions lack.
constexpr uint32_t kLinkTypeXdp = 6;

/// `struct bpf_link_create_opts` as far as it is used; libbpf reads no more than `size`.
struct LinkOptions {
  size_t size = sizeof(LinkOptions);
  uint32_t flags = 0;
  uint32_t unused = 0;
};

/// libbpf's functions, by their names without the prefix. The members have the types of bpf/libbpf.h and bpf/bpf.h.
struct Library {
  void* (*set_print)(void* print);
  void* (*open_file)(const char* path, const void* options);
  int (*load)(void* object);
  void (*close)(void* object);
  void* (*find_program)(const void* object, const char* name);
  int (*program_fd)(const void* program);
  int (*find_map_fd)(const void* object, const char* name);
  int (*link_create)(int program, int target, int type, const LinkOptions* options);
  int (*map_update)(int fd, const void* key, const void* value, uint64_t flags);
  int (*map_delete)(int fd, const void* key);
  int (*map_next_key)(int fd, const void* key, void* next);
  int (*program_by_id)(uint32_t id);
  int (*map_by_id)(uint32_t id);
  int (*link_by_id)(uint32_t id);
  int (*link_next_id)(uint32_t id, uint32_t* next);
  int (*info_by_fd)(int fd, void* info, uint32_t* length);
};

/// Filled once for the process. A thread reads it only after its own call of Open.
Library bpf;

/// Finds all functions. @returns false if the library lacks one; dlerror() says which
bool Find(void* library) {
  const auto find = [library](auto& function, const char* name) {
    void* found = dlsym(library, name);
    std::memcpy(&function, &found, sizeof function);
    return found != nullptr;
  };
  return find(bpf.set_print, "libbpf_set_print") && find(bpf.open_file, "bpf_object__open_file") &&
         find(bpf.load, "bpf_object__load") && find(bpf.close, "bpf_object__close") &&
         find(bpf.find_program, "bpf_object__find_program_by_name") && find(bpf.program_fd, "bpf_program__fd") &&
         find(bpf.find_map_fd, "bpf_object__find_map_fd_by_name") && find(bpf.link_create, "bpf_link_create") &&
         find(bpf.map_update, "bpf_map_update_elem") && find(bpf.map_delete, "bpf_map_delete_elem") &&
         find(bpf.map_next_key, "bpf_map_get_next_key") && find(bpf.program_by_id, "bpf_prog_get_fd_by_id") &&
         find(bpf.map_by_id, "bpf_map_get_fd_by_id") && find(bpf.link_by_id, "bpf_link_get_fd_by_id") &&
         find(bpf.link_next_id, "bpf_link_get_next_id") && find(bpf.info_by_fd, "bpf_obj_get_info_by_fd");
}

/// Opens libbpf unless it is open. It stays open as long as the process. @returns the error; empty without one
std::string Open() {
  static std::mutex mutex;
  static bool isOpen = false;
  const std::lock_guard<std::mutex> lock(mutex);
  if (isOpen) return "";
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  isOpen = library != nullptr && Find(library);
  if (isOpen) {
    // Turns off libbpf's messages on standard error; its results are enough.
    bpf.set_print(nullptr);
    return "";
  }
  const char* told = dlerror();
  const std::string reason = told != nullptr ? told : "it lacks a function";
  if (library != nullptr) dlclose(library);
  return reason;
}

void* HandleAt(const Napi::CallbackInfo& info, size_t i) {
  return info[i].IsExternal() ? info[i].As<Napi::External<void>>().Data() : nullptr;
}

Napi::Value Handle(const Napi::CallbackInfo& info, void* handle) {
  if (handle == nullptr) return info.Env().Null();
  return Napi::External<void>::New(info.Env(), handle);
}

/// A name in a structure of the kernel: ended by a zero byte, or by the end of the array.
template <size_t size>
Napi::Value Name(const Napi::CallbackInfo& info, const char (&name)[size]) {
  return Napi::String::New(info.Env(), name, strnlen(name, size));
}

// openObject(path): a handle, or null
Napi::Value OpenObject(const Napi::CallbackInfo& info) {
  return Handle(info, bpf.open_file(TextAt(info, 0).c_str(), nullptr));
}

// loadObject(object): 0 or -errno
Napi::Value LoadObject(const Napi::CallbackInfo& info) { return Result(info, bpf.load(HandleAt(info, 0))); }

// closeObject(object)
void CloseObject(const Napi::CallbackInfo& info) { bpf.close(HandleAt(info, 0)); }

// findProgram(object, name): a handle, or null
Napi::Value FindProgram(const Napi::CallbackInfo& info) {
  return Handle(info, bpf.find_program(HandleAt(info, 0), TextAt(info, 1).c_str()));
}

// programFd(program): a file descriptor, which the object owns, or -errno
Napi::Value ProgramFd(const Napi::CallbackInfo& info) { return Result(info, bpf.program_fd(HandleAt(info, 0))); }

// findMapFd(object, name): a file descriptor, which the object owns, or -errno
Napi::Value FindMapFd(const Napi::CallbackInfo& info) {
  return Result(info, bpf.find_map_fd(HandleAt(info, 0), TextAt(info, 1).c_str()));
}

// attachXdp(program's file descriptor, ifindex, flags): a file descriptor of the bpf_link, or -errno
Napi::Value AttachXdp(const Napi::CallbackInfo& info) {
  LinkOptions options;
  options.flags = static_cast<uint32_t>(IntAt(info, 2));
  return OwnFd(info.Env(), bpf.link_create(IntAt(info, 0), IntAt(info, 1), BPF_XDP, &options));
}

// updateElement(map's file descriptor, key, value): 0 or -errno
Napi::Value UpdateElement(const Napi::CallbackInfo& info) {
  return Result(info, bpf.map_update(IntAt(info, 0), BytesAt(info, 1).Data(), BytesAt(info, 2).Data(), BPF_ANY));
}

// deleteElement(map's file descriptor, key): 0 or -errno
Napi::Value DeleteElement(const Napi::CallbackInfo& info) {
  return Result(info, bpf.map_delete(IntAt(info, 0), BytesAt(info, 1).Data()));
}

// keys(map's file descriptor, bytes of a key): all keys
Napi::Value Keys(const Napi::CallbackInfo& info) {
  auto keys = Napi::Array::New(info.Env());
  const auto bytes = static_cast<size_t>(IntAt(info, 1));
  std::vector<uint8_t> last(bytes), next(bytes);
  while (bpf.map_next_key(IntAt(info, 0), keys.Length() == 0 ? nullptr : last.data(), next.data()) == 0) {
    auto key = Napi::Uint8Array::New(info.Env(), bytes);
    std::memcpy(key.Data(), next.data(), bytes);
    keys.Set(keys.Length(), key);
    last = next;
  }
  return keys;
}

// programById(id), mapById(id), linkById(id): a file descriptor, or -errno
template <int (*Library::*open)(uint32_t)>
Napi::Value OpenById(const Napi::CallbackInfo& info) {
  return OwnFd(info.Env(), (bpf.*open)(static_cast<uint32_t>(IntAt(info, 0))));
}

// nextLinkId(id): the id after this one, or undefined
Napi::Value NextLinkId(const Napi::CallbackInfo& info) {
  uint32_t next = 0;
  if (bpf.link_next_id(static_cast<uint32_t>(IntAt(info, 0)), &next) != 0) return info.Env().Undefined();
  return Napi::Number::New(info.Env(), next);
}

/// Reads a structure of the kernel about a program, map or link. Leaves it empty if the kernel refuses.
template <typename Info>
void Read(int fd, Info& about) {
  uint32_t length = sizeof about;
  if (bpf.info_by_fd(fd, &about, &length) != 0) about = {};
}

// programInfo(file descriptor): {tag, name, mapIds}
Napi::Value ProgramInfo(const Napi::CallbackInfo& info) {
  uint32_t maps[kMaxMaps] = {};
  bpf_prog_info program{};
  program.nr_map_ids = kMaxMaps;
  program.map_ids = reinterpret_cast<uint64_t>(maps);
  Read(IntAt(info, 0), program);
  std::string tag;
  for (const uint8_t byte : program.tag) {
    tag += "0123456789abcdef"[byte >> 4];
    tag += "0123456789abcdef"[byte & 15];
  }
  auto mapIds = Napi::Array::New(info.Env());
  for (uint32_t i = 0; i < std::min(program.nr_map_ids, kMaxMaps); i++) mapIds.Set(i, maps[i]);
  auto object = Napi::Object::New(info.Env());
  object.Set("tag", tag);
  object.Set("name", Name(info, program.name));
  object.Set("mapIds", mapIds);
  return object;
}

// mapName(file descriptor)
Napi::Value MapName(const Napi::CallbackInfo& info) {
  bpf_map_info map{};
  Read(IntAt(info, 0), map);
  return Name(info, map.name);
}

// linkInfo(file descriptor): {programId, ifindex}, or undefined for a link that is not of XDP
Napi::Value LinkInfo(const Napi::CallbackInfo& info) {
  bpf_link_info link{};
  Read(IntAt(info, 0), link);
  if (link.type != kLinkTypeXdp) return info.Env().Undefined();
  auto object = Napi::Object::New(info.Env());
  object.Set("programId", link.prog_id);
  object.Set("ifindex", link.xdp.ifindex);
  return object;
}

// libbpf(): an object with the functions above, or why there is none
Napi::Value Libbpf(const Napi::CallbackInfo& info) {
  const std::string missing = Open();
  if (!missing.empty()) return Napi::String::New(info.Env(), missing);
  Napi::Env env = info.Env();
  auto object = Napi::Object::New(env);
  const auto set = [&](const char* name, auto function) { object.Set(name, Napi::Function::New(env, function, name)); };
  set("openObject", OpenObject);
  set("loadObject", LoadObject);
  set("closeObject", CloseObject);
  set("findProgram", FindProgram);
  set("programFd", ProgramFd);
  set("findMapFd", FindMapFd);
  set("attachXdp", AttachXdp);
  set("updateElement", UpdateElement);
  set("deleteElement", DeleteElement);
  set("keys", Keys);
  set("programById", OpenById<&Library::program_by_id>);
  set("mapById", OpenById<&Library::map_by_id>);
  set("linkById", OpenById<&Library::link_by_id>);
  set("nextLinkId", NextLinkId);
  set("programInfo", ProgramInfo);
  set("mapName", MapName);
  set("linkInfo", LinkInfo);
  return object;
}

}  // namespace

void DefineLibbpf(Napi::Object exports) {
  exports.Set("libbpf", Napi::Function::New<Libbpf>(exports.Env(), "libbpf"));
}

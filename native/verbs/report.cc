#include "report.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "adapter.h"
#include "card_texts.h"
#include "core/fd.h"
#include "counted.h"
#include "settings.h"

namespace {

constexpr auto kKinds = static_cast<size_t>(Kind::kCount);
/// In the order of Kind.
constexpr std::array<const char*, kKinds> kNames = {
    "device context",     "protection domain", "thread domain",        "memory region",  "memory window",
    "completion channel", "completion queue",  "shared receive queue", "address handle", "queue pair",
};
constexpr int kMaxFrames = 24;

std::array<std::atomic<int64_t>, kKinds> alive;
std::array<uint64_t, std::size(kStatusNames)> polled;
Adapter* reported = nullptr;
pid_t process = 0;

/// The calls that have made an object.
struct Stack {
  Kind kind;
  int count;
  void* frames[kMaxFrames];
};

struct Stacks {
  std::mutex mutex;
  std::unordered_map<const void*, Stack> all;

  /// Returns those of all objects, if they are wanted; else null. Never destroyed: threads may outlive main.
  static Stacks* Get() {
    static auto* stacks = Setting("WASM_ROCE_STACKS") != nullptr ? new Stacks : nullptr;
    return stacks;
  }
};

std::string Amount(int64_t count, const char* name) {
  return std::to_string(count) + " " + name + (count == 1 ? "" : "s");
}

void AppendList(std::string& to, const char* title, const std::string& list) {
  to += std::string("  ") + title + ": " + (list.empty() ? "none" : list) + "\n";
}

void AppendItem(std::string& list, const std::string& item) { list += (list.empty() ? "" : ", ") + item; }

std::string Polled() {
  std::string list;
  for (size_t i = 0; i < polled.size(); i++)
    if (polled[i] != 0) AppendItem(list, std::to_string(polled[i]) + " " + kStatusNames[i].text);
  return list;
}

std::string Alive() {
  std::string list;
  for (size_t i = 0; i < kKinds; i++)
    if (alive[i] > 0) AppendItem(list, Amount(alive[i], kNames[i]));
  return list;
}

std::string Counters(Adapter& adapter) {
  std::string list;
  uint32_t at = 0;
  adapter.Call([&](w2c_card* card) { at = w2c_card_counters(card); });
  for (const CodeText& each : kCounterNames) {
    const auto count = at == 0 ? 0 : adapter.Read<uint64_t>(at + 8 * each.code);
    if (count != 0) AppendItem(list, std::string(each.text) + " " + std::to_string(count));
  }
  return list;
}

/// Whether an address of code is this library's.
bool IsOwn(void* address) {
  Dl_info own, other;
  if (dladdr(reinterpret_cast<void*>(&IsOwn), &own) == 0 || dladdr(address, &other) == 0) return false;
  return own.dli_fbase == other.dli_fbase;
}

void AppendStacks(std::string& to) {
  Stacks* stacks = Stacks::Get();
  if (stacks == nullptr) return;
  const std::lock_guard<std::mutex> lock(stacks->mutex);
  for (const auto& [object, stack] : stacks->all) {
    to += std::string("  ") + kNames[static_cast<size_t>(stack.kind)] + ", made by:\n";
    char** lines = backtrace_symbols(stack.frames, stack.count);
    for (int i = 0; lines != nullptr && i < stack.count; i++)
      if (!IsOwn(stack.frames[i])) to += std::string("    ") + lines[i] + "\n";
    free(lines);
  }
}

/// A fault that never comes is no test. @returns the rules without a hit
std::string IdleRules() {
  std::vector<std::string> rules;
  if (!reported->FindIdleRules(rules)) {
    fputs("wasm-roce: the broker does not say which rules of faults have hit no packet\n", stderr);
    return "unknown";
  }
  std::string list;
  for (const std::string& rule : rules) {
    fprintf(stderr, "wasm-roce: the rule of faults '%s' has hit no packet of process %d\n", rule.c_str(), getpid());
    AppendItem(list, rule);
  }
  return list;
}

void WriteReport() {
  // a child that has not opened the device has nothing to report
  if (getpid() != process) return;
  const bool hasRules = Setting("WASM_ROCE_FAULT") != nullptr;
  const std::string idle = hasRules ? IdleRules() : std::string();
  const char* file = Setting("WASM_ROCE_REPORT");
  if (file == nullptr) return;
  std::string text = std::string(program_invocation_short_name) + " (process " + std::to_string(getpid()) + ")\n";
  {
    const Adapter::Lock lock = reported->Hold();
    AppendList(text, "completions", Polled());
    AppendList(text, "completions that were not polled", std::to_string(reported->TheEvents().Pending(*reported)));
    AppendList(text, "objects that were not destroyed", Alive());
    AppendList(text, "counters", Counters(*reported));
    if (hasRules) AppendList(text, "rules of faults that have hit no packet", idle);
  }
  AppendStacks(text);
  const bool isStderr = strcmp(file, "-") == 0;
  int fd = isStderr ? STDERR_FILENO : open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  // whole: other processes may write theirs to the same file
  if (fd < 0 || write(fd, text.data(), text.size()) < 0)
    fprintf(stderr, "wasm-roce: the report cannot be written to %s: %s\n", file, strerror(errno));
  if (!isStderr) CloseFd(fd);
}

}  // namespace

void CountMade(Kind kind, const void* object) {
  alive[static_cast<size_t>(kind)]++;
  Stacks* stacks = Stacks::Get();
  if (stacks == nullptr) return;
  Stack stack{kind, 0, {}};
  stack.count = backtrace(stack.frames, kMaxFrames);
  const std::lock_guard<std::mutex> lock(stacks->mutex);
  stacks->all[object] = stack;
}

void CountDestroyed(Kind kind, const void* object) {
  alive[static_cast<size_t>(kind)]--;
  Stacks* stacks = Stacks::Get();
  if (stacks == nullptr) return;
  const std::lock_guard<std::mutex> lock(stacks->mutex);
  stacks->all.erase(object);
}

void CountCompletion(uint32_t status) {
  if (status < polled.size()) polled[status]++;
}

void ReportAtExit(Adapter& adapter) {
  const bool isWanted = Setting("WASM_ROCE_REPORT") != nullptr || Setting("WASM_ROCE_FAULT") != nullptr;
  static const int registered = isWanted ? atexit(WriteReport) : 0;
  if (registered != 0) fputs("wasm-roce: there will be no report: too many functions wait for the exit\n", stderr);
  reported = &adapter;
  process = getpid();
  // a child counts its own
  for (auto& each : alive) each = 0;
  polled.fill(0);
}

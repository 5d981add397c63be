#include "brokersearch.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

#include "core/blockedsignals.h"
#include "core/clock.h"
#include "core/fd.h"
#include "core/unixsocket.h"
#include "settings.h"

namespace {

// As BROKER_NAME and STARTING_NAME of src/link/broker.
constexpr const char* kName = "wasm-roce/broker";
constexpr const char* kStartingName = "wasm-roce/broker/starting";
/// Time that a broker has to start.
constexpr int64_t kPatience = 10 * kSecond;
/// Bytes of the stack of the process that becomes the shell.
constexpr size_t kStackBytes = 64 << 10;
/// close_range, of Linux 5.9, which libc's headers may lack.
constexpr long kCloseRange = 436;
constexpr unsigned kFirstOther = 3;

/// A command of the shell, and its environment.
struct Shell {
  const char* command;
  char* const* environment;
};

/// Closes all file descriptors but those of the standard streams.
void CloseOthers() {
  if (syscall(kCloseRange, kFirstOther, ~0u, 0) == 0) return;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto end = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 16));
  for (int fd = kFirstOther; fd < end; fd++) close(fd);
}

/// No handler of the program's runs in the process that becomes the shell: it shares the program's memory until then.
void DropHandlers() {
  // the kernel's form of a struct sigaction with SIG_DFL, and the size of its set of signals
  const uint8_t standard[64] = {};
  for (int signal = 1; signal < NSIG; signal++) syscall(SYS_rt_sigaction, signal, standard, nullptr, 8);
}

int RunShell(void* of) {
  const auto& shell = *static_cast<Shell*>(of);
  setsid();
  DropHandlers();
  CloseOthers();
  if (chdir("/") != 0) _exit(1);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execle("/bin/sh", "sh", "-c", shell.command, nullptr, shell.environment);
  _exit(1);
}

/// Runs a command behind a shell that ends at once, so that nobody waits for it. The program does not learn of the
/// shell: it ends without SIGCHLD, and `wait` does not find it.
void RunBehind(const std::string& command) {
  const std::string text = "{ " + command + "\n} </dev/null >/dev/null 2>&1 &";
  const char* path = Setting("PATH");
  std::string search = std::string("PATH=") + (path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path);
  char* const environment[] = {search.data(), nullptr};
  Shell shell{text.c_str(), environment};
  std::vector<uint8_t> stack(kStackBytes);
  const BlockedSignals blocked;
  const auto top = reinterpret_cast<uintptr_t>(stack.data() + stack.size()) & ~uintptr_t{15};
  const pid_t child = clone(RunShell, reinterpret_cast<void*>(top), CLONE_VM | CLONE_VFORK, &shell);
  if (child < 0) return;
  while (waitpid(child, nullptr, __WCLONE) < 0 && errno == EINTR) {
  }
}

}  // namespace

int BrokerSearch::Try(int64_t now) {
  const int fd = ConnectUnix(kName);
  if (fd >= 0) End();
  if (fd != -ECONNREFUSED) return fd;
  const char* command = Setting("WASM_ROCE_BROKER_COMMAND");
  if (command == nullptr) return -ENOENT;
  if (starting_ >= 0 && now > startingUntil_) End();
  if (starting_ >= 0) return -EAGAIN;
  starting_ = ListenUnix(kStartingName);
  if (starting_ == -EADDRINUSE) return -EAGAIN;
  if (starting_ < 0) return starting_;
  startingUntil_ = now + kPatience;
  RunBehind(command);
  return -EAGAIN;
}

void BrokerSearch::End() { CloseFd(starting_); }

// The broker of the network namespace: finds it, and starts it where the environment says how.
#pragma once
#include <cstdint>

/// One search, by one attempt after the other.
class BrokerSearch {
 public:
  BrokerSearch() = default;
  ~BrokerSearch() { End(); }
  BrokerSearch(const BrokerSearch&) = delete;
  BrokerSearch& operator=(const BrokerSearch&) = delete;

  /// Connects to the broker. Without one, it is started by WASM_ROCE_BROKER_COMMAND, a command of the shell, unless
  /// another process starts one. It outlives this process.
  /// @returns a connected socket, which the caller owns; -EAGAIN: it may be there later; -ENOENT: there is none, and no
  /// command that starts it; -errno
  int Try(int64_t now);
  /// Lets other processes start a broker.
  void End();

 private:
  /// Bound by the process that starts a broker, so that a crowd of programs starts one.
  int starting_ = -1;
  /// Others may start it from this time on (ns), if it has not come.
  int64_t startingUntil_ = 0;
};

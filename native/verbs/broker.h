// The adapter's end of the broker of its network namespace (src/link/broker/protocol.ts): a slot of queue pair numbers,
// and a socket for each address. So the programs of an address share its UDP port. When the broker ends, the slot and
// the sockets stay, and the next broker learns of them.
//
// The caller holds the adapter's lock.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "brokersearch.h"
#include "core/unixsocket.h"
#include "port.h"

class Broker {
 public:
  Broker() = default;
  ~Broker() { Leave(); }
  Broker(const Broker&) = delete;
  Broker& operator=(const Broker&) = delete;

  enum class Result { kDone, kNone, kRefused };
  /// Joins the broker, which is started if the environment says how. Waits for ten seconds at most.
  /// @returns kNone if there is none; kRefused after a line on stderr
  Result Join(const std::vector<Gid>& addresses);
  /// Whether other programs share the addresses.
  bool HasJoined() const { return slot_ != 0; }
  /// Bits 16 to 23 of the adapter's queue pair numbers: 1 to 255. 0: none.
  uint32_t Slot() const { return slot_; }
  /// Waits for ten seconds at most. @returns the socket of an address, which the caller owns; -1 after a line on stderr
  int SocketOf(const Gid& address);
  /// Opens a file of rdma_cm for a port: streams of commands and of events, which the caller owns. Waits for ten
  /// seconds at most. @returns false after a line on stderr
  bool OpenRdmaCm(const Port& port, int& commands, int& events);
  /// Has rules of faults of the program's be in force. Waits for ten seconds at most. @returns false, and why
  bool SetFaults(const std::vector<std::string>& rules, int64_t seed, std::string& why);
  /// Finds the rules that have hit no packet. Waits for ten seconds at most. @returns false without an answer
  bool FindRulesWithoutHits(std::vector<std::string>& rules);
  /// Gives the slot back, or leaves it to the process that has forked this one.
  void Leave();

  /// Readable when there is something for `Keep`; -1: nothing to wait for.
  int Fd() const { return connection_; }
  /// Returns when `Keep` is due, though nothing arrives (ns); 0 = never.
  int64_t Deadline() const;
  /// Takes what has arrived, and looks for the next broker when there is none. Does not wait.
  /// @returns false once, when the next broker does not know the slot: the sockets may receive what is for others
  bool Keep(int64_t now);

  /// Wishes of a controller of the program, and of its rules of faults.
  struct Wishes {
    /// A stream that all frames are to pass (gate.h), or -1. The caller owns it.
    int gate = -1;
    /// Whether the state of the device is to be sent: SendStat.
    bool stat = false;
    /// Whether there are events of the host: the device shows these from now on.
    bool host = false, isDown = false, hasFailed = false;
    /// IP addresses of the GID table.
    std::vector<std::string> gids;
  };
  Wishes TakeWishes() { return std::exchange(wishes_, {}); }
  /// Sends the state of the device: a DeviceStat of src/verbs/diagnose/stat.ts as JSON.
  void SendStat(const std::string& json);

 private:
  /// An answer of the broker.
  struct Answer {
    uint32_t slot = 0;
    std::string secret, error, message;
    std::vector<int> fds;
    /// Rules of faults that have hit no packet.
    std::vector<std::string> idleRules;
  };

  bool IsTrusted() const;
  void Connect(int64_t now);
  void Greet(int64_t now);
  void OnGreeted(Answer& answer);
  bool Ask(const std::string& request, Answer& answer);
  void Send(const std::string& message, const std::vector<int>& fds);
  void Receive();
  void OnMessage(const UnixMessage& message);
  void Disconnect();

  BrokerSearch search_;
  int connection_ = -1, lease_ = -1, vault_ = -1;
  uint32_t slot_ = 0;
  std::string secret_;
  /// The end of `join` and `rejoin`.
  std::string about_;
  /// A request for the program's rules of faults, for each broker. Empty: it has none.
  std::string faults_;
  Wishes wishes_;
  /// The broker has to answer the first message of the connection until this time (ns); 0: it has.
  int64_t greetsUntil_ = 0;
  /// Time of the next attempt to find a broker (ns), without a connection.
  int64_t retryAt_ = 0;
  /// The request that waits for an answer; it is sent again to the next broker. Empty: none.
  std::string asked_;
  Answer answer_;
  bool hasAnswer_ = false;
  /// The reason of the last failure.
  std::string failure_;
  bool isAbsent_ = false, isRefused_ = false, isLost_ = false;
};

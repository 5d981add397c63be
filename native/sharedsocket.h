// A socket that two threads share: the managing thread, which created it, opens, binds, joins, reads counters and
// closes; the thread that adopted it moves its frames. Each call of either thread locks the socket's mutex.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>

class SharedSocket;

/// The state that both threads refer to. `socket` is null after the managing thread has closed the socket.
struct TransferredSocket {
  std::mutex mutex;
  SharedSocket* socket = nullptr;
  uint32_t id = 0;
};

/// Base of a socket object. The managing thread calls `Lock` in every method, which costs nothing before `Transfer`.
class SharedSocket {
 public:
  /// As `send` and `receive` of NativeFrameSocket (src/native.ts). The caller holds the lock.
  virtual int32_t SendFrames() = 0;
  virtual uint32_t ReceiveFrames() = 0;
  /// As ReceiveFrames, for sockets beside an interface, which brings most frames and costs no system call.
  /// @param hasOthers whether the interface has brought frames in this turn
  virtual uint32_t ReceiveLocal(bool) { return ReceiveFrames(); }

 protected:
  ~SharedSocket() = default;
  /// Registers the socket. @returns the id by which AdoptedSocket finds it, in any environment of this process
  uint32_t Transfer();
  /// Ends the transfer: waits for a call of the other thread, and later calls move nothing. Destructors call it first.
  void Revoke();
  [[nodiscard]] std::unique_lock<std::mutex> Lock() const {
    return transferred_ ? std::unique_lock<std::mutex>(transferred_->mutex) : std::unique_lock<std::mutex>();
  }

 private:
  std::shared_ptr<TransferredSocket> transferred_;
};

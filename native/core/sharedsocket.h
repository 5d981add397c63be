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

/// Base of the sockets. Its own methods and those of derived classes belong to the managing thread, and lock what needs
/// it. The lock costs nothing before `Transfer`.
class SharedSocket {
 public:
  /// As `send` of NativeFrameSocket (src/native.ts): sends frames of the transmit ring. @returns descriptors consumed;
  /// `~` of that if the kernel has refused a GSO burst
  int32_t Send() {
    const auto lock = Lock();
    return SendFrames();
  }
  /// As `receive` of NativeFrameSocket: receives one batch. @returns descriptors produced in the receive ring
  uint32_t Receive() {
    const auto lock = Lock();
    return ReceiveFrames();
  }
  /// Lets another thread move the frames. @returns the id for AdoptedSocket, the same for each call
  virtual uint32_t Transfer();

 protected:
  ~SharedSocket() = default;
  /// As Send and Receive. The caller holds the lock.
  virtual int32_t SendFrames() = 0;
  virtual uint32_t ReceiveFrames() = 0;
  /// As ReceiveFrames, for sockets beside an interface, which brings most frames and costs no system call.
  /// @param hasOthers whether the interface has brought frames in this turn
  virtual uint32_t ReceiveLocalFrames(bool) { return ReceiveFrames(); }
  /// Ends the transfer: waits for a call of the other thread, and later calls move nothing. Destructors call it first.
  void Revoke();
  [[nodiscard]] std::unique_lock<std::mutex> Lock() const {
    return transferred_ ? std::unique_lock<std::mutex>(transferred_->mutex) : std::unique_lock<std::mutex>();
  }

 private:
  friend class AdoptedSocket;
  std::shared_ptr<TransferredSocket> transferred_;
};

/// A transferred socket in the thread that moves its frames. Any thread may make one; each then belongs to one thread.
class AdoptedSocket {
 public:
  /// @param id that Transfer has returned
  explicit AdoptedSocket(uint32_t id);
  /// As those of the socket; 0 after it was closed.
  int32_t Send();
  uint32_t Receive();
  /// @param hasOthers see SharedSocket::ReceiveLocalFrames
  uint32_t ReceiveLocal(bool hasOthers);

 private:
  std::shared_ptr<TransferredSocket> transferred_;
};

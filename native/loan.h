// Sockets that are lent: one thread manages them - opens, binds, joins, counts, closes - and another moves their frames.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>

class Lender;

/// What both threads hold. `lender` is null once the socket is gone.
struct Loan {
  std::mutex mutex;
  Lender* lender = nullptr;
  uint32_t id = 0;
};

/// Base of a socket's object. Whoever manages it holds it in every call (`Hold`), which costs nothing while it is not lent.
class Lender {
 public:
  /// As `send` and `receive` of NativeFrameSocket.
  virtual int32_t SendFrames() = 0;
  virtual uint32_t ReceiveFrames() = 0;

 protected:
  ~Lender() = default;
  /// @returns the number under which Borrowed finds it, in any environment of this process
  uint32_t Lend();
  /// Ends the loan. To be called first of all when the object goes away.
  void Withdraw();
  [[nodiscard]] std::unique_lock<std::mutex> Hold() const {
    return loan_ ? std::unique_lock<std::mutex>(loan_->mutex) : std::unique_lock<std::mutex>();
  }

 private:
  std::shared_ptr<Loan> loan_;
};

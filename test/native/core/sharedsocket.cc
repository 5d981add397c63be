#include "core/sharedsocket.h"

#include <doctest/doctest.h>
#include <atomic>
#include <thread>

namespace {

/// A socket that only counts.
class Counting final : public SharedSocket {
 public:
  ~Counting() { Close(); }
  void Close() { Revoke(); }
  /// As a method of the managing thread.
  uint64_t Calls() const {
    const auto lock = Lock();
    return calls_;
  }

 private:
  int32_t SendFrames() override { return calls_++, 1; }
  uint32_t ReceiveFrames() override { return calls_++, 2; }
  // without a lock: the thread sanitizer sees a call that does not lock
  uint64_t calls_ = 0;
};

}  // namespace

TEST_CASE("a transferred socket has one id, and another thread moves its frames until it is closed") {
  Counting socket;
  const uint32_t id = socket.Transfer();
  CHECK(socket.Transfer() == id);
  AdoptedSocket adopted(id);
  CHECK(adopted.Send() == 1);
  CHECK(adopted.Receive() == 2);
  CHECK(adopted.ReceiveLocal(true) == 2);
  CHECK(socket.Calls() == 3);
  socket.Close();
  CHECK(adopted.Send() == 0);
  CHECK(adopted.Receive() == 0);
  CHECK(AdoptedSocket(id).Send() == 0);
  CHECK(AdoptedSocket(0).Send() == 0);
}

TEST_CASE("sockets that are closed while other threads move their frames are not used any more") {
  for (int round = 0; round < 50; round++) {
    auto socket = std::make_unique<Counting>();
    const uint32_t id = socket->Transfer();
    std::atomic<int> started{0};
    std::atomic<bool> ends{false};
    const auto move = [&] {
      AdoptedSocket adopted(id);
      started++;
      while (!ends) adopted.Send(), adopted.Receive();
    };
    std::thread one(move), two(move);
    while (started < 2) std::this_thread::yield();
    for (int i = 0; i < 20; i++) socket->Calls(), socket->Send();
    socket.reset();
    ends = true;
    one.join();
    two.join();
  }
}

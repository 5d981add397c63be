#include "core/lastframes.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <thread>

#include "card.h"
#include "core/fd.h"
#include "core/udpsocket.h"

namespace {

const sockaddr_in kHere = Address4("127.0.0.1", 4791), kThere = Address4("127.0.0.2", 4791);

/// A socket on an address of the loopback interface.
struct Bound {
  explicit Bound(const sockaddr_in& address) { REQUIRE(OpenUdpSocket(fd, Address(address), 0, Sharing::kNone) == 0); }
  ~Bound() { CloseFd(fd); }
  /// Returns how many datagrams have arrived, after those of a process that has ended.
  int Arrived() const {
    int count = 0;
    uint8_t byte;
    for (pollfd readable{fd, POLLIN, 0}; poll(&readable, 1, 0) > 0; count++) recv(fd, &byte, 1, 0);
    return count;
  }
  int fd = -1;
};

int64_t Keep(const Bound& from, const void* owner) {
  const auto frame = Frame(kHere, kThere, Payload(30));
  return KeepLastFrame(owner, from.fd, frame.data(), frame.size(), 1);
}

}  // namespace

TEST_CASE("the frames of an owner leave when it ends, and no others") {
  const Bound from(kHere), to(kThere);
  int one = 0, two = 0;
  CHECK(Keep(from, &one) >= 0);
  CHECK(Keep(from, &one) >= 0);
  const int64_t kept = Keep(from, &two);
  CHECK(kept >= 0);
  EndLastFramesOf(&one);
  CHECK(to.Arrived() == 2);
  EndLastFramesOf(&one);
  CHECK(to.Arrived() == 0);
  DropLastFrame(static_cast<uint64_t>(kept));
  EndLastFramesOf(&two);
  CHECK(to.Arrived() == 0);
}

TEST_CASE("an id that was dropped drops no later frame in the same place") {
  const Bound from(kHere), to(kThere);
  int owner = 0;
  const auto first = static_cast<uint64_t>(Keep(from, &owner));
  DropLastFrame(first);
  CHECK(Keep(from, &owner) >= 0);
  DropLastFrame(first);
  DropLastFrame(UINT64_MAX);
  EndLastFramesOf(&owner);
  CHECK(to.Arrived() == 1);
}

TEST_CASE("frames of a socket are dropped when it is closed") {
  const Bound to(kThere);
  int owner = 0;
  {
    const Bound from(kHere);
    CHECK(Keep(from, &owner) >= 0);
  }
  EndLastFramesOf(&owner);
  CHECK(to.Arrived() == 0);
}

TEST_CASE("a frame that is too long, no datagram, or of no socket is refused") {
  const Bound from(kHere);
  const auto isRefused = [&](int fd, const std::vector<uint8_t>& frame) {
    return KeepLastFrame(nullptr, fd, frame.data(), frame.size(), 1);
  };
  CHECK(isRefused(from.fd, Frame(kHere, kThere, Payload(1000))) == -EMSGSIZE);
  CHECK(isRefused(from.fd, Payload(60)) == -EINVAL);
  CHECK(isRefused(-1, Frame(kHere, kThere, Payload(10))) == -EBADF);
}

TEST_CASE("a child process sends no frames of its parent, whose connections are not its own") {
  const Bound from(kHere), to(kThere);
  int owner = 0;
  CHECK(Keep(from, &owner) >= 0);
  const pid_t child = fork();
  if (child == 0) {
    EndLastFramesOf(&owner);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  CHECK(to.Arrived() == 0);
  EndLastFramesOf(&owner);
  CHECK(to.Arrived() == 1);
}

TEST_CASE("threads keep and drop frames at the same time") {
  const Bound from(kHere), to(kThere);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; thread++)
    threads.emplace_back([&from] {
      int owner = 0;
      for (int i = 0; i < 300; i++) {
        const int64_t id = Keep(from, &owner);
        if (i % 3 > 0) DropLastFrame(static_cast<uint64_t>(id));
        if (i % 50 == 0) EndLastFramesOf(&owner);
      }
      EndLastFramesOf(&owner);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(to.Arrived() > 0);
}

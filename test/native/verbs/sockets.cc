// A library in front of libc's calls for sockets, as librspreload.so is.
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pair.h"

namespace {
int taken = 0;
}

extern "C" int socket(int domain, int type, int protocol) noexcept {
  taken++;
  return static_cast<int>(syscall(SYS_socket, domain, type, protocol));
}

TEST_CASE("a library that takes a program's sockets does not get those of the adapter") {
  Pair pair(IBV_QPT_UD);
  const ibv_gid group{{0xff, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}};
  CHECK(ibv_attach_mcast(pair.a.qp, &group, 0) == 0);
  CHECK(taken == 0);
}

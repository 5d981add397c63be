#include "fd.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>
#include <cstdint>

#include "lastframes.h"

int KernelSocket(int domain, int type, int protocol) {
  return static_cast<int>(syscall(SYS_socket, domain, type | SOCK_CLOEXEC, protocol));
}

void SetReceiveBuffer(int fd, int bytes) {
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) != 0)
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

void SetSendBuffer(int fd, int bytes) {
  if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) != 0)
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

int ReceiveBuffer(int fd) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &size);
  return bytes;
}

void DropReceived(int fd) {
  uint8_t byte;
  while (recv(fd, &byte, sizeof byte, MSG_DONTWAIT | MSG_TRUNC) >= 0 || errno == EINTR) {
  }
}

void CloseFd(int& fd) {
  DropLastFramesOf(fd);
  if (fd >= 0) close(fd);
  fd = -1;
}

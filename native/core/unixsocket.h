// Unix sockets in the abstract namespace, which belongs to the network namespace: SOCK_SEQPACKET, so that messages keep
// their ends, with file descriptors (SCM_RIGHTS of unix(7)). An abstract name ends with its socket. No call blocks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// A message as it is received.
struct UnixMessage {
  std::vector<uint8_t> bytes;
  /// The receiver owns them.
  std::vector<int> fds;

  /// Whether it is the end of the stream, and no message.
  bool IsEnd() const { return bytes.empty() && fds.empty(); }
};

/// Opens a socket. @param type SOCK_SEQPACKET, or another one @returns a file descriptor or -errno
int OpenUnixSocket(int type);
/// Opens a socket that listens on an abstract name. @returns a file descriptor or -errno
int ListenUnix(const std::string& name);
/// Opens a socket that is connected to an abstract name. @returns a file descriptor or -errno: ECONNREFUSED if nobody
/// has the name, EAGAIN if too many wait
int ConnectUnix(const std::string& name);
/// Sends a message with file descriptors, which stay the caller's. @returns 0 or -errno
int SendUnix(int fd, const void* bytes, size_t count, const std::vector<int>& fds);
/// Receives the oldest message. @param peeks whether the message stays; its file descriptors are new ones each time
/// @returns 0 or -errno; EMSGSIZE: the message was too long, and its file descriptors are closed
int ReceiveUnix(int fd, bool peeks, UnixMessage& message);

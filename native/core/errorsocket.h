// A UDP socket with a port of its own that sends single frames and learns of the ICMP errors that they meet. The
// sockets of the links do not: an error would be returned by a call for another peer.
//
// It is not connected, for the same reason as the sockets of udpsocket.h. It belongs to one thread.
#pragma once
#include <netinet/in.h>
#include <cstdint>

/// An ICMP error, as the kernel reports it.
struct IcmpError {
  int error;       // errno
  sockaddr_in6 to;  // the destination of the frame; or a sockaddr_in
};

class ErrorSocket {
 public:
  ~ErrorSocket() { Close(); }

  /// Binds to a local address. @returns 0 or -errno
  int Open(const sockaddr_in6& address);
  uint16_t Port() const { return port_; }
  int Fd() const { return fd_; }
  /// @returns 0 or -errno
  int Send(uint8_t* frame, uint32_t bytes) const;
  /// Reads the oldest error that has not been read. @returns false if there is none
  bool Read(IcmpError& error) const;
  void Close();

 private:
  int Bind(const sockaddr_in6& address);

  int fd_ = -1;
  bool isIpv6_ = false;
  uint32_t scopeId_ = 0;
  uint16_t port_ = 0;
};

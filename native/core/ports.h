// UDP ports that are bound so that the kernel does not answer their datagrams with ICMP "port unreachable". The sockets
// drop everything and are never read. The managing thread uses them, under the lock of its socket (sharedsocket.h).
#pragma once
#include <netinet/in.h>
#include <cstddef>
#include <cstdint>
#include <vector>

class BoundPorts {
 public:
  ~BoundPorts() { Close(); }
  /// Binds the port of an address. @param isShared whether others may bind it @returns 0 or -errno
  int Bind(const sockaddr_in6& address, bool isShared);
  /// Closes the port of an IP address of 4 or 16 bytes. Does nothing if there is none.
  void Unbind(const uint8_t* ip, size_t bytes);
  /// Sets UDP_GRO. Without it the kernel segments super-packets before the socket drops them.
  void SetGro(bool gro);
  void Close();

 private:
  int BindSocket(int fd, const sockaddr_in6& address, bool isShared) const;
  std::vector<int> sockets_;
  bool gro_ = false;
};

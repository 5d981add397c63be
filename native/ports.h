// UDP ports that are held so that the kernel does not answer what comes to them by "port unreachable": sockets that are
// never read.
#pragma once
#include <napi.h>
#include <netinet/in.h>
#include <vector>

class HeldPorts {
 public:
  ~HeldPorts() { Close(); }
  /// Arguments from JavaScript: address of 4 or 16 bytes, port, scope id. @returns 0 or -errno
  int Hold(const Napi::CallbackInfo& info);
  /// Argument from JavaScript: address of 4 or 16 bytes. Nothing happens when it is not held.
  void Release(const Napi::CallbackInfo& info);
  /// Whether what comes may be super-packets. Otherwise the kernel takes them apart before it lets the socket drop them.
  void Coalesce(bool coalesces);
  void Close();

 private:
  int Bind(int fd, const sockaddr_in6& address) const;
  std::vector<int> sockets_;
  bool coalesces_ = false;
};

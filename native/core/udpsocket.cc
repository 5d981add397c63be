#include "udpsocket.h"

#include <netinet/udp.h>
#include <sys/socket.h>
#include <cerrno>

#include "address.h"
#include "fd.h"

namespace {

/// UDP_NO_CHECK6_TX, which libc's headers lack.
constexpr int kUdpNoCheck6Tx = 101;

}  // namespace

int SetChecksum(int fd, bool isIpv6, Checksum checksum) {
  const int isZero = checksum == Checksum::kZero;
  const int result = isIpv6 ? setsockopt(fd, IPPROTO_UDP, kUdpNoCheck6Tx, &isZero, sizeof isZero)
                            : setsockopt(fd, SOL_SOCKET, SO_NO_CHECK, &isZero, sizeof isZero);
  return result == 0 ? 0 : -errno;
}

int OpenUdpSocket(int& fd, const sockaddr_in6& address, int bufferBytes, Sharing sharing) {
  const bool isIpv6 = IsIpv6(address);
  fd = KernelSocket(isIpv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK);
  if (fd < 0) return -errno;
  auto set = [&](int level, int option, int value) { return setsockopt(fd, level, option, &value, sizeof value); };
  const bool isSet =
      isIpv6 ? set(IPPROTO_IPV6, IPV6_V6ONLY, 1) == 0 &&
                   set(IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO) == 0 &&
                   set(IPPROTO_IPV6, IPV6_RECVTCLASS, 1) == 0 && set(IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1) == 0 &&
                   // RoCE peers send no UDP checksum over IPv6 either, and the kernel would drop such datagrams
                   set(IPPROTO_UDP, UDP_NO_CHECK6_RX, 1) == 0 &&
                   // the address may still be tentative, during duplicate address detection
                   set(IPPROTO_IPV6, kIpv6FreeBind, 1) == 0
             : set(IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) == 0 && set(IPPROTO_IP, IP_RECVTOS, 1) == 0 &&
                   set(IPPROTO_IP, IP_RECVTTL, 1) == 0;
  if (!isSet) return -errno;
  // it only counts, and emulated kernels (QEMU's user mode, gVisor) lack it
  set(SOL_SOCKET, SO_RXQ_OVFL, 1);
  if (sharing == Sharing::kGroup && set(SOL_SOCKET, SO_REUSEADDR, 1) != 0) return -errno;
  if (sharing == Sharing::kPort && set(SOL_SOCKET, SO_REUSEPORT, 1) != 0) return -errno;
  SetReceiveBuffer(fd, bufferBytes);
  SetSendBuffer(fd, bufferBytes);
  return bind(fd, reinterpret_cast<const sockaddr*>(&address), SizeOf(address)) == 0 ? 0 : -errno;
}

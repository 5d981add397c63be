#include "sourceports.h"

#include <cstring>

#include "card_codes.h"
#include "core/address.h"
#include "limits.h"

namespace {

/// As SOURCE_PORTS of src/link/broker/sharedsockets.ts.
constexpr uint32_t kPorts = 16;
/// Queue pair 1 may be that of any program of the peer's host.
constexpr uint32_t kAny = kPorts;

}  // namespace

uint16_t SourcePorts::To(UdpSockets& sockets, const Gid& source, uint32_t remoteQpn, int bufferBytes) {
  const uint32_t slot = remoteQpn == MULTICAST_QPN ? 0 : remoteQpn >> 16;
  const bool isAny = remoteQpn == GSI_QPN;
  if (slot == 0 && !isAny) return kRocePort;
  Key key{{}, isAny ? kAny : slot % kPorts};
  memcpy(key.first.data(), source.raw, sizeof source.raw);
  if (const auto known = ports_.find(key); known != ports_.end()) return known->second;
  const sockaddr_in6 address =
      source.IsIpv4() ? SocketAddress(source.raw + 12, 4, 0, 0) : SocketAddress(source.raw, 16, 0, source.scope);
  const int port = sockets.AddSender(address, bufferBytes, !isAny);
  // without a socket GRO may join packets for two programs, which costs retransmissions
  if (port < 0) return kRocePort;
  return ports_[key] = static_cast<uint16_t>(port);
}

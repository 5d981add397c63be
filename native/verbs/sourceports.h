// The UDP source ports of an adapter that shares its addresses with other programs. GRO joins packets of equal ports:
// those to another program of the peer's host leave by another port, as far as there are sockets.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include "core/udpsockets.h"
#include "port.h"

class SourcePorts {
 public:
  /// Returns the source port of packets from an address to a queue pair. @param remoteQpn 0 = not known
  uint16_t To(UdpSockets& sockets, const Gid& source, uint32_t remoteQpn, int bufferBytes);

 private:
  using Key = std::pair<std::array<uint8_t, sizeof Gid::raw>, uint32_t>;
  std::map<Key, uint16_t> ports_;
};

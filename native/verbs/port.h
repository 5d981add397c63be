// The port of the adapter: an interface of the host, and its addresses as GIDs.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

/// Returns whether a GID has an IPv4 address: ::ffff:a.b.c.d.
bool IsIpv4Mapped(const uint8_t raw[16]);

/// An address as a GID: IPv6, or IPv4-mapped.
struct Gid {
  uint8_t raw[16];
  /// Index of the interface of a link-local IPv6 address, else 0.
  uint32_t scope;

  bool IsIpv4() const { return IsIpv4Mapped(raw); }
  bool IsLinkLocal() const;
  /// The IP address as text.
  std::string Text() const;
};

class Port {
 public:
  /// Chooses the interface: WASM_ROCE_INTERFACE, or the first one that is up and has an address, loopback last.
  /// @returns false and why, if there is none
  bool Find(std::string& why);
  /// Shows another state than the interface's, and another GID table, as rules of faults pretend.
  /// @param addresses IP addresses, in the order of the table @returns whether the table has changed
  bool Show(bool isDown, const std::vector<std::string>& addresses);
  /// The GID table: link-local addresses, then IPv4, then other IPv6, as devices of Node have it.
  const std::vector<Gid>& Gids() const { return gids_; }
  int Interface() const { return index_; }
  const std::string& Name() const { return name_; }
  /// Bytes of an IP packet.
  uint32_t InterfaceMtu() const { return mtu_; }
  /// Largest path MTU: payload bytes of a packet.
  uint32_t ActiveMtu() const;
  /// Whether packets can be sent: the interface is up, and long enough for the least path MTU.
  bool IsActive() const { return isUp_ && !isShownDown_ && ActiveMtu() > 0; }
  /// The interface's MAC address as EUI-64, in network order.
  void Guid(uint8_t guid[8]) const;

 private:
  void AddGids(const struct ifaddrs* all);

  std::string name_;
  int index_ = 0;
  uint32_t mtu_ = 0;
  bool isUp_ = false, isShownDown_ = false;
  uint8_t mac_[6] = {};
  /// The table that is shown, and that of the interface.
  std::vector<Gid> gids_, own_;
};

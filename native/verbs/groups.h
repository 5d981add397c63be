// Multicast groups: their members among the queue pairs. The sockets join a group with the first member, and leave it
// with the last one. The adapter's lock protects it.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <set>

#include "abi.h"

class Adapter;

class Groups {
 public:
  /// @returns 0 or an errno: EINVAL if it is a member already, or not UD; of the socket that joins
  int Attach(Adapter& adapter, uint32_t qp, const ibv_gid& group);
  /// @returns 0 or an errno: EINVAL if it is no member
  int Detach(Adapter& adapter, uint32_t qp, const ibv_gid& group);
  /// Forgets a queue pair that was destroyed.
  void Remove(Adapter& adapter, uint32_t qp);

 private:
  using Key = std::array<uint8_t, 16>;

  std::map<Key, std::set<uint32_t>> members_;
};

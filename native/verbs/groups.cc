#include "groups.h"

#include "adapter.h"
#include "cardcall.h"

namespace {

int CallWithGroup(Adapter& adapter, u32 (*call)(w2c_card* card, u32 qp), uint32_t qp, const ibv_gid& group) {
  return CallCard(adapter, [&](w2c_card* card) {
    memcpy(adapter.At(adapter.Scratch()), group.raw, sizeof group.raw);
    return call(card, qp);
  });
}

}  // namespace

int Groups::Attach(Adapter& adapter, uint32_t qp, const ibv_gid& group) {
  if (const int refused = CallWithGroup(adapter, w2c_card_mcastAttach, qp, group)) return refused;
  Key key;
  memcpy(key.data(), group.raw, key.size());
  std::set<uint32_t>& members = members_[key];
  const int refused = members.empty() ? adapter.JoinGroup(group.raw) : 0;
  if (refused == 0) {
    members.insert(qp);
  } else {
    members_.erase(key);
    CallWithGroup(adapter, w2c_card_mcastDetach, qp, group);
  }
  return refused;
}

int Groups::Detach(Adapter& adapter, uint32_t qp, const ibv_gid& group) {
  // a driver of the kernel says EINVAL where the card says ENOENT
  if (CallWithGroup(adapter, w2c_card_mcastDetach, qp, group) != 0) return EINVAL;
  Key key;
  memcpy(key.data(), group.raw, key.size());
  const auto found = members_.find(key);
  if (found == members_.end()) return 0;
  found->second.erase(qp);
  if (!found->second.empty()) return 0;
  members_.erase(found);
  adapter.LeaveGroup(group.raw);
  return 0;
}

void Groups::Remove(Adapter& adapter, uint32_t qp) {
  for (auto at = members_.begin(); at != members_.end();) {
    const bool isLast = at->second.erase(qp) > 0 && at->second.empty();
    if (isLast) adapter.LeaveGroup(at->first.data());
    at = isLast ? members_.erase(at) : std::next(at);
  }
}

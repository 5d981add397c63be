// Protection domains, memory regions and memory windows.
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>

#include "card_codes.h"
#include "cardcall.h"
#include "context.h"
#include "objects.h"

namespace {

/// Access rights that the card knows. The others are hints.
constexpr unsigned kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                             IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
constexpr unsigned kHints = IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;

/// Checks what a region may be. @returns 0 or an errno
int CheckRegion(size_t length, unsigned access) {
  if (access & IBV_ACCESS_ON_DEMAND) return EOPNOTSUPP;
  if (access & ~(kRights | kHints | IBV_ACCESS_ZERO_BASED)) return EINVAL;
  return length > UINT32_MAX ? EINVAL : 0;
}

/// Returns whether the process has all of the pages, as drivers find out when they pin them.
bool IsMapped(const void* address, size_t length) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  constexpr size_t kPages = 4096;
  unsigned char pages[kPages];
  const auto begin = reinterpret_cast<uintptr_t>(address), end = begin + length;
  for (uintptr_t at = begin & ~(page - 1); at < end; at += kPages * page)
    if (mincore(reinterpret_cast<void*>(at), std::min(kPages * page, end - at), pages) != 0) return false;
  return true;
}

bool IsWritable(unsigned access) { return access & IBV_ACCESS_LOCAL_WRITE; }

/// Takes the keys that the card has given.
void TakeKeys(Adapter& adapter, Mr& mr) {
  adapter.Call([&](w2c_card* card) {
    mr.lkey = w2c_card_mrLkey(card, mr.handle);
    mr.rkey = w2c_card_mrRkey(card, mr.handle);
  });
}

ibv_mr* Register(ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned access) {
  if (const int refused = CheckRegion(length, access)) return RefuseWith(refused);
  if (!IsMapped(address, length)) return RefuseWith(EFAULT);
  auto* mr = Make<Mr>();
  if (mr == nullptr) return nullptr;
  if (access & IBV_ACCESS_ZERO_BASED) iova = 0;
  Adapter& adapter = AdapterOf(pd->context);
  const Adapter::Lock lock = adapter.Hold();
  Regions& regions = adapter.MemoryRegions();
  mr->region = regions.Add(static_cast<uint8_t*>(address), length, IsWritable(access));
  if (mr->region == 0) return Discard(mr, ENOMEM);
  const int refused = MakeInCard(adapter, mr->handle, [&](w2c_card* card) {
    const auto bytes = static_cast<uint32_t>(length);
    return w2c_card_mrReg(card, pd->handle, mr->region, 0, bytes, access & kRights, High(iova), Low(iova));
  });
  if (refused != 0) {
    regions.Remove(mr->region);
    return Discard(mr, refused);
  }
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = address;
  mr->length = length;
  mr->iova = iova;
  mr->access = access;
  TakeKeys(adapter, *mr);
  adapter.Keys().Add(mr);
  return mr;
}

ibv_pd* MakePd(ibv_context* context, uint32_t handle, Pd* parent) {
  auto* pd = Make<Pd>();
  if (pd == nullptr) return nullptr;
  pd->context = context;
  pd->handle = handle;
  pd->parent = parent;
  return pd;
}

ibv_pd* AllocParentDomain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
  // the others are for memory of queues, which the card has in its own
  constexpr uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  if (attr->pd == nullptr || (attr->comp_mask & ~known) != 0) return RefuseWith(EINVAL);
  const Adapter::Lock lock = AdapterOf(context).Hold();
  Pd* parent = PdOf(attr->pd);
  ibv_pd* pd = MakePd(context, parent->handle, parent);
  if (pd != nullptr) parent->users++;
  return pd;
}

ibv_td* AllocTd(ibv_context* context, ibv_td_init_attr* attr) {
  if (attr->comp_mask != 0) return RefuseWith(EINVAL);
  auto* td = Make<Td>();
  if (td != nullptr) td->context = context;
  return td;
}

int DeallocTd(ibv_td* td) {
  delete static_cast<Td*>(td);
  return 0;
}

ibv_mw* AllocMw(ibv_pd* pd, ibv_mw_type type) {
  auto* mw = Make<Mw>();
  if (mw == nullptr) return nullptr;
  Adapter& adapter = AdapterOf(pd->context);
  const Adapter::Lock lock = adapter.Hold();
  const int refused = MakeInCard(adapter, mw->handle, [&](w2c_card* card) {
    return w2c_card_mwAlloc(card, pd->handle, type);
  });
  if (refused != 0) return Discard(mw, refused);
  mw->context = pd->context;
  mw->pd = pd;
  mw->type = type;
  adapter.Call([&](w2c_card* card) { mw->rkey = w2c_card_mrRkey(card, mw->handle); });
  return mw;
}

int DeallocMw(ibv_mw* mw) {
  Adapter& adapter = AdapterOf(mw->context);
  const Adapter::Lock lock = adapter.Hold();
  const int refused = CallCard(adapter, [&](w2c_card* card) { return w2c_card_mwFree(card, mw->handle); });
  if (refused == 0) delete MwOf(mw);
  return Answer(refused);
}

/// @returns the code, with errno
int RefuseRereg(int error, ibv_rereg_mr_err_code code) {
  errno = error;
  return code;
}

}  // namespace

void SetMemoryOperations(Context& context) {
  context.alloc_parent_domain = AllocParentDomain;
  context.alloc_td = AllocTd;
  context.dealloc_td = DeallocTd;
  context.context.ops.alloc_mw = AllocMw;
  context.context.ops.dealloc_mw = DeallocMw;
}

VERBS_API ibv_pd* ibv_alloc_pd(ibv_context* context) {
  Adapter& adapter = AdapterOf(context);
  const Adapter::Lock lock = adapter.Hold();
  uint32_t handle = 0;
  const int refused = MakeInCard(adapter, handle, [](w2c_card* card) { return w2c_card_pdAlloc(card); });
  return refused != 0 ? RefuseWith(refused) : MakePd(context, handle, nullptr);
}

VERBS_API int ibv_dealloc_pd(ibv_pd* base) {
  Pd* pd = PdOf(base);
  Adapter& adapter = AdapterOf(base->context);
  const Adapter::Lock lock = adapter.Hold();
  if (pd->users > 0) return Answer(EBUSY);
  if (pd->parent != nullptr) {
    pd->parent->users--;
  } else if (const int refused = CallCard(adapter, [&](w2c_card* card) { return w2c_card_pdFree(card, pd->handle); })) {
    return Answer(refused);
  }
  delete pd;
  return 0;
}

VERBS_API ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t length, int access) {
  return Register(pd, address, length, reinterpret_cast<uintptr_t>(address), static_cast<unsigned>(access));
}

VERBS_API ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, size_t length, uint64_t iova, int access) {
  return Register(pd, address, length, iova, static_cast<unsigned>(access));
}

VERBS_API ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned access) {
  return Register(pd, address, length, iova, access);
}

VERBS_API ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, uint64_t, size_t, uint64_t, int, int) { return RefuseWith(EOPNOTSUPP); }

VERBS_API int ibv_rereg_mr(ibv_mr* base, int flags, ibv_pd* pd, void* address, size_t length, int access) {
  constexpr int known = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  if (flags == 0 || (flags & ~known) != 0) return RefuseRereg(EINVAL, IBV_REREG_MR_ERR_INPUT);
  Mr* mr = MrOf(base);
  const bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
  ibv_pd* newPd = flags & IBV_REREG_MR_CHANGE_PD ? pd : mr->pd;
  void* newAddress = moves ? address : mr->addr;
  const size_t newLength = moves ? length : mr->length;
  const uint64_t iova = moves ? reinterpret_cast<uintptr_t>(address) : mr->iova;
  const unsigned rights = flags & IBV_REREG_MR_CHANGE_ACCESS ? static_cast<unsigned>(access) : mr->access;
  if (const int wrong = CheckRegion(newLength, rights)) return RefuseRereg(wrong, IBV_REREG_MR_ERR_INPUT);
  if (moves && !IsMapped(newAddress, newLength)) return RefuseRereg(EFAULT, IBV_REREG_MR_ERR_INPUT);
  Adapter& adapter = AdapterOf(mr->context);
  const Adapter::Lock lock = adapter.Hold();
  Regions& regions = adapter.MemoryRegions();
  // the place of a request that was posted before stays in the region of the old memory
  const uint32_t region = regions.Add(static_cast<uint8_t*>(newAddress), newLength, IsWritable(rights));
  if (region == 0) return RefuseRereg(ENOMEM, IBV_REREG_MR_ERR_CMD);
  // the kernel's drivers keep the keys, and programs count on it
  const int refused = CallCard(adapter, [&](w2c_card* card) {
    return w2c_card_mrRereg(card, mr->handle, newPd->handle, true, region, 0, static_cast<uint32_t>(newLength),
                            rights & kRights, High(iova), Low(iova));
  });
  regions.Remove(refused == 0 ? mr->region : region);
  // nothing has changed
  if (refused != 0) return RefuseRereg(refused, IBV_REREG_MR_ERR_CMD);
  mr->region = region;
  mr->pd = newPd;
  mr->addr = newAddress;
  mr->length = newLength;
  mr->iova = iova;
  mr->access = rights;
  return 0;
}

VERBS_API int ibv_dereg_mr(ibv_mr* base) {
  Mr* mr = MrOf(base);
  Adapter& adapter = AdapterOf(mr->context);
  const Adapter::Lock lock = adapter.Hold();
  const auto deregister = [&](w2c_card* card) { return w2c_card_mrDereg(card, mr->handle); };
  const int refused = mr->isLost ? 0 : CallCard(adapter, deregister);
  // an adapter that has failed, or that a child has inherited, lets go of the program's memory all the same
  if (refused != 0 && !adapter.HasFailed()) return Answer(refused);
  adapter.Keys().Remove(mr);
  adapter.MemoryRegions().Remove(mr->region);
  delete mr;
  return 0;
}

// The child of a program that forks has a copy of its memory, and the adapter stays the parent's.
VERBS_API int ibv_fork_init() { return 0; }
VERBS_API ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }
VERBS_API int ibv_dontfork_range(void*, size_t) { return 0; }
VERBS_API int ibv_dofork_range(void*, size_t) { return 0; }

// Objects of another process: rxe has none either.
VERBS_API ibv_context* ibv_import_device(int) { return RefuseWith(EOPNOTSUPP); }
VERBS_API ibv_pd* ibv_import_pd(ibv_context*, uint32_t) { return RefuseWith(EOPNOTSUPP); }
VERBS_API void ibv_unimport_pd(ibv_pd*) {}
VERBS_API ibv_mr* ibv_import_mr(ibv_pd*, uint32_t) { return RefuseWith(EOPNOTSUPP); }
VERBS_API void ibv_unimport_mr(ibv_mr*) {}
VERBS_API ibv_dm* ibv_import_dm(ibv_context*, uint32_t) { return RefuseWith(EOPNOTSUPP); }
VERBS_API void ibv_unimport_dm(ibv_dm*) {}

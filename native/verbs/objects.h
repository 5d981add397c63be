// The objects of verbs: each begins with what programs see, and goes on with what the library keeps. `handle` is the
// card's.
//
// A program frees an object once, and uses it in no other thread then, as the man pages demand.
#pragma once
#include <cerrno>
#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "abi.h"
#include "adapter.h"
#include "counted.h"

struct Cq;

/// A queue of events with a file descriptor that is readable while it has some: an eventfd that counts them. The
/// adapter's lock protects the queue.
template <typename Event>
struct EventQueue {
  int fd = -1;
  std::deque<Event> events;
};

struct Context : verbs_context, Counted<Kind::kContext> {
  Adapter* adapter;
  EventQueue<ibv_async_event> async;
};

struct Pd : ibv_pd, Counted<Kind::kPd> {
  /// Of a parent domain: the domain whose objects it has. Else null.
  Pd* parent;
  /// Parent domains of this domain.
  int users;
};

struct Td : ibv_td, Counted<Kind::kTd> {};

struct Mr : ibv_mr, Counted<Kind::kMr> {
  /// Number of the memory in the adapter's regions.
  uint32_t region;
  uint64_t iova;
  unsigned access;
  /// The program has unmapped it, and the card does not know it any more.
  bool isLost;
};

struct Mw : ibv_mw, Counted<Kind::kMw> {};

struct Channel : ibv_comp_channel, Counted<Kind::kChannel> {
  EventQueue<Cq*> queue;
};

struct Cq : ibv_cq_ex, Counted<Kind::kCq> {
  /// Events that the program has read from the channel.
  uint32_t eventsRead;
  uint32_t asyncEventsRead;
  /// Of a poll in progress (ibv_start_poll): the completion. The poll has the lock.
  ibv_wc current;
  std::mutex polling;

  ibv_cq* Base() { return reinterpret_cast<ibv_cq*>(this); }
};

struct Srq : ibv_srq, Counted<Kind::kSrq> {
  uint32_t eventsRead;
  uint32_t maxSge;
};

struct Ah : ibv_ah, Counted<Kind::kAh> {
  ibv_ah_attr attr;
  /// Other handles of the card for the same address, by UDP source port.
  std::map<uint16_t, uint32_t> byPort;
};

/// A send request that calls describe one after the other. Its memory is used again for later requests.
struct Described {
  ibv_send_wr request;
  std::vector<ibv_sge> sges;
  std::vector<uint8_t> inlineData;
};

/// A request that was posted, and the data that must stay until it is complete (strict.h).
struct Promised {
  bool isSignaled;
  std::string name;
  std::vector<ibv_sge> data;
  uint64_t hash;
};

struct Qp : ibv_qp_ex, Counted<Kind::kQp> {
  uint32_t eventsRead;
  ibv_qp_cap cap;
  int signalsAll;
  /// The address that the program has set last.
  ibv_ah_attr ahAttr;
  uint32_t destQpn;
  uint32_t qkey;
  /// Whether a failure of it was explained.
  bool isExplained;
  /// Requests that are not complete, in their order, if the program is to be checked (strict.h).
  std::deque<Promised> promised;
  /// Whether it was made for the calls that describe requests (ibv_wr_start).
  bool isExtended;
  /// From ibv_wr_start to ibv_wr_complete, which have the lock: the requests that are described, and the first error.
  std::mutex describing;
  std::vector<Described> described;
  size_t describedCount;
  int describeError;

  ibv_qp* Base() { return &qp_base; }
};

inline Context* ContextOf(ibv_context* context) { return static_cast<Context*>(verbs_get_ctx(context)); }
inline Adapter& AdapterOf(ibv_context* context) { return *ContextOf(context)->adapter; }
inline Pd* PdOf(ibv_pd* pd) { return static_cast<Pd*>(pd); }
inline Mr* MrOf(ibv_mr* mr) { return static_cast<Mr*>(mr); }
inline Mw* MwOf(ibv_mw* mw) { return static_cast<Mw*>(mw); }
inline Cq* CqOf(ibv_cq* cq) { return static_cast<Cq*>(reinterpret_cast<ibv_cq_ex*>(cq)); }
inline Srq* SrqOf(ibv_srq* srq) { return static_cast<Srq*>(srq); }
inline Ah* AhOf(ibv_ah* ah) { return static_cast<Ah*>(ah); }
inline Qp* QpOf(ibv_qp* qp) { return static_cast<Qp*>(reinterpret_cast<ibv_qp_ex*>(qp)); }
inline Channel* ChannelOf(ibv_comp_channel* channel) { return static_cast<Channel*>(channel); }

/// Makes an object of zeros, or null and ENOMEM.
template <typename Object>
Object* Make() {
  auto* object = new (std::nothrow) Object{};
  if (object == nullptr) errno = ENOMEM;
  return object;
}

/// Ends a function that returns 0 or an errno, and sets errno, too: the calls of the kernel do, and programs print it.
inline int Answer(int error) {
  if (error != 0) errno = error;
  return error;
}

/// Ends a function that returns a pointer: sets errno. @returns null
inline std::nullptr_t RefuseWith(int error) {
  errno = error;
  return nullptr;
}

/// Frees an object that could not be made whole. @returns null, with errno
template <typename Object>
std::nullptr_t Discard(Object* object, int error) {
  delete object;
  return RefuseWith(error);
}

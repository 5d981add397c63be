#include "events.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>

#include "card_codes.h"
#include "explain.h"
#include "objects.h"
#include "strict.h"

namespace {

/// Opens the file descriptor of a queue. @returns 0 or an errno
template <typename Event>
int OpenQueue(EventQueue<Event>& queue) {
  queue.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  return queue.fd < 0 ? errno : 0;
}

template <typename Event>
void Push(EventQueue<Event>& queue, const Event& event) {
  queue.events.push_back(event);
  eventfd_write(queue.fd, 1);
}

/// Takes an event from what the file descriptor counts, unless a program that reads it itself has done so.
template <typename Event>
void Uncount(EventQueue<Event>& queue) {
  eventfd_t count;
  const iovec into{&count, sizeof count};
  if (preadv2(queue.fd, &into, 1, -1, RWF_NOWAIT) >= 0 || errno == EAGAIN) return;
  // a kernel without this for eventfds
  pollfd one{queue.fd, POLLIN, 0};
  if (poll(&one, 1, 0) > 0) eventfd_read(queue.fd, &count);
}

/// Removes events that the program has not read, and what the file descriptor counts of them.
template <typename Event, typename IsUnwanted>
void Forget(EventQueue<Event>& queue, IsUnwanted isUnwanted) {
  const auto end = std::remove_if(queue.events.begin(), queue.events.end(), isUnwanted);
  for (auto at = end; at != queue.events.end(); at++) Uncount(queue);
  queue.events.erase(end, queue.events.end());
}

/// The kinds of elements of asynchronous events.
enum class Element { kNone, kCq, kQp, kSrq };

Element ElementOf(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return Element::kCq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return Element::kQp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return Element::kSrq;
    default:
      return Element::kNone;
  }
}

void ReportTo(ibv_context* context, ibv_async_event event, uint32_t type) {
  event.event_type = static_cast<ibv_event_type>(type);
  // the card has more types than verbs
  if (ElementOf(event.event_type) == Element::kNone) return;
  ExplainEvent(event);
  CheckEvent(event);
  Push(ContextOf(context)->async, event);
}

void ForgetAsync(ibv_context* context, const void* element) {
  Forget(ContextOf(context)->async, [=](const ibv_async_event& event) {
    return ElementOf(event.event_type) != Element::kNone && event.element.cq == element;
  });
}

void CountAsyncRead(const ibv_async_event& event) {
  const Element element = ElementOf(event.event_type);
  if (element == Element::kCq) CqOf(event.element.cq)->asyncEventsRead++;
  if (element == Element::kQp) QpOf(event.element.qp)->eventsRead++;
  if (element == Element::kSrq) SrqOf(event.element.srq)->eventsRead++;
}

void Acknowledge(pthread_mutex_t& mutex, pthread_cond_t& cond, uint32_t& completed, unsigned events) {
  pthread_mutex_lock(&mutex);
  completed += events;
  pthread_cond_signal(&cond);
  pthread_mutex_unlock(&mutex);
}

/// An object that the program can see has what its acknowledgements need.
void BeginAcknowledging(pthread_mutex_t& mutex, pthread_cond_t& cond) {
  pthread_mutex_init(&mutex, nullptr);
  pthread_cond_init(&cond, nullptr);
}

void FreeAcknowledging(pthread_mutex_t& mutex, pthread_cond_t& cond) {
  pthread_cond_destroy(&cond);
  pthread_mutex_destroy(&mutex);
}

void Await(pthread_mutex_t& mutex, pthread_cond_t& cond, const uint32_t& completed, uint32_t events) {
  pthread_mutex_lock(&mutex);
  while (completed != events) pthread_cond_wait(&cond, &mutex);
  pthread_mutex_unlock(&mutex);
}

}  // namespace

void Events::Register(Cq* cq) {
  BeginAcknowledging(cq->mutex, cq->cond);
  targets_[cq->handle] = {Target::kCq, cq};
}

void Events::Register(Qp* qp) {
  BeginAcknowledging(qp->qp_base.mutex, qp->qp_base.cond);
  targets_[qp->qp_base.handle] = {Target::kQp, qp};
}

void Events::Register(Srq* srq) {
  BeginAcknowledging(srq->mutex, srq->cond);
  targets_[srq->handle] = {Target::kSrq, srq};
}

void Events::Unregister(Cq* cq) {
  targets_.erase(cq->handle);
  ForgetAsync(cq->context, cq);
  if (cq->channel != nullptr) Forget(ChannelOf(cq->channel)->queue, [=](const Cq* of) { return of == cq; });
}

void Events::Unregister(Qp* qp) {
  targets_.erase(qp->qp_base.handle);
  ForgetAsync(qp->qp_base.context, qp);
}

void Events::Unregister(Srq* srq) {
  targets_.erase(srq->handle);
  ForgetAsync(srq->context, srq);
}

void Events::Remove(Context* context) {
  contexts_.erase(std::remove(contexts_.begin(), contexts_.end(), context), contexts_.end());
}

Qp* Events::QpOf(uint32_t handle) const {
  const auto found = targets_.find(handle);
  const bool isQp = found != targets_.end() && found->second.kind == Target::kQp;
  return isQp ? static_cast<Qp*>(found->second.object) : nullptr;
}

std::vector<const Qp*> Events::Qps() const {
  std::vector<const Qp*> qps;
  for (const auto& [handle, target] : targets_)
    if (target.kind == Target::kQp) qps.push_back(static_cast<const Qp*>(target.object));
  return qps;
}

uint64_t Events::Pending(Adapter& adapter) const {
  uint64_t count = 0;
  for (const auto& [handle, target] : targets_) {
    const uint32_t cq = handle;
    if (target.kind != Target::kCq) continue;
    adapter.Call([&](w2c_card* card) { count += w2c_card_cqFilled(card, cq); });
  }
  return count;
}

void Events::Dispatch(uint32_t type, uint32_t handle) {
  const auto found = targets_.find(handle);
  if (found == targets_.end()) return;
  void* const object = found->second.object;
  ibv_async_event event{};
  switch (found->second.kind) {
    case Target::kCq: {
      auto* cq = static_cast<Cq*>(object);
      event.element.cq = cq->Base();
      if (type != EventType::COMPLETION) return ReportTo(cq->context, event, type);
      if (cq->channel != nullptr) Push(ChannelOf(cq->channel)->queue, cq);
      return;
    }
    case Target::kQp: {
      auto* qp = static_cast<Qp*>(object);
      event.element.qp = qp->Base();
      return ReportTo(qp->qp_base.context, event, type);
    }
    case Target::kSrq: {
      auto* srq = static_cast<Srq*>(object);
      event.element.srq = srq;
      return ReportTo(srq->context, event, type);
    }
  }
}

void Events::Report(ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.port_num = 1;
  for (Context* context : contexts_) Push(context->async, event);
}

void EndAcknowledging(Cq* cq) {
  Await(cq->mutex, cq->cond, cq->comp_events_completed, cq->eventsRead);
  Await(cq->mutex, cq->cond, cq->async_events_completed, cq->asyncEventsRead);
  FreeAcknowledging(cq->mutex, cq->cond);
}

void EndAcknowledging(Qp* qp) {
  ibv_qp& base = qp->qp_base;
  Await(base.mutex, base.cond, base.events_completed, qp->eventsRead);
  FreeAcknowledging(base.mutex, base.cond);
}

void EndAcknowledging(Srq* srq) {
  Await(srq->mutex, srq->cond, srq->events_completed, srq->eventsRead);
  FreeAcknowledging(srq->mutex, srq->cond);
}

int OpenAsyncQueue(Context* context) {
  const int refused = OpenQueue(context->async);
  context->context.async_fd = context->async.fd;
  return refused;
}

VERBS_API int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  EventQueue<ibv_async_event>& queue = ContextOf(context)->async;
  for (;;) {
    eventfd_t count;
    if (eventfd_read(queue.fd, &count) != 0) return -1;
    const Adapter::Lock lock = AdapterOf(context).Hold();
    // the count was read before the event was removed, with its object
    if (queue.events.empty()) continue;
    *event = queue.events.front();
    queue.events.pop_front();
    CountAsyncRead(*event);
    return 0;
  }
}

VERBS_API void ibv_ack_async_event(ibv_async_event* event) {
  switch (ElementOf(event->event_type)) {
    case Element::kCq: {
      Cq* cq = CqOf(event->element.cq);
      return Acknowledge(cq->mutex, cq->cond, cq->async_events_completed, 1);
    }
    case Element::kQp: {
      ibv_qp* qp = event->element.qp;
      return Acknowledge(qp->mutex, qp->cond, qp->events_completed, 1);
    }
    case Element::kSrq: {
      ibv_srq* srq = event->element.srq;
      return Acknowledge(srq->mutex, srq->cond, srq->events_completed, 1);
    }
    case Element::kNone:
      return;
  }
}

VERBS_API ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  auto* channel = Make<Channel>();
  if (channel == nullptr) return nullptr;
  if (const int refused = OpenQueue(channel->queue)) return Discard(channel, refused);
  channel->context = context;
  channel->fd = channel->queue.fd;
  return channel;
}

VERBS_API int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  {
    const Adapter::Lock lock = AdapterOf(channel->context).Hold();
    if (channel->refcnt > 0) return Answer(EBUSY);
  }
  close(channel->fd);
  delete ChannelOf(channel);
  return 0;
}

VERBS_API int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cqContext) {
  Adapter& adapter = AdapterOf(channel->context);
  EventQueue<Cq*>& queue = ChannelOf(channel)->queue;
  for (bool isFirst = true;; isFirst = false) {
    {
      const Adapter::Lock lock = adapter.Hold();
      if (isFirst && queue.events.empty()) adapter.Poll(true);
      if (!queue.events.empty()) {
        Cq* const taken = queue.events.front();
        queue.events.pop_front();
        Uncount(queue);
        taken->eventsRead++;
        *cq = taken->Base();
        *cqContext = taken->cq_context;
        return 0;
      }
    }
    const bool waits = (fcntl(queue.fd, F_GETFL) & O_NONBLOCK) == 0;
    errno = waits ? adapter.Wait(queue.fd) : EAGAIN;
    if (errno != 0) return -1;
  }
}

VERBS_API void ibv_ack_cq_events(ibv_cq* cq, unsigned events) {
  Acknowledge(cq->mutex, cq->cond, cq->comp_events_completed, events);
}

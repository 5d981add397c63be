// Completion events and asynchronous events: from the card to the queues that programs read.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "abi.h"

class Adapter;
struct Context;
struct Cq;
struct Qp;
struct Srq;

/// The objects of an adapter that the card has events for. The adapter's lock protects it.
class Events {
 public:
  /// Events of the card for the handle of an object are the object's from now on, until Unregister.
  void Register(Cq* cq);
  void Register(Qp* qp);
  void Register(Srq* srq);
  /// Removes the object's events that the program has not read.
  void Unregister(Cq* cq);
  void Unregister(Qp* qp);
  void Unregister(Srq* srq);

  /// Returns the queue pair with a handle, or null.
  Qp* QpOf(uint32_t handle) const;
  std::vector<const Qp*> Qps() const;

  /// Returns the number of completions that wait in queues.
  uint64_t Pending(Adapter& adapter) const;

  /// The events of the whole device are reported to it, too.
  void Add(Context* context) { contexts_.push_back(context); }
  void Remove(Context* context);

  /// Takes an event of the card: its EventType, and the handle of the object.
  void Dispatch(uint32_t type, uint32_t handle);
  /// Reports an event of the whole device.
  void Report(ibv_event_type type);

 private:
  struct Target {
    enum Kind { kCq, kQp, kSrq } kind;
    void* object;
  };

  std::unordered_map<uint32_t, Target> targets_;
  std::vector<Context*> contexts_;
};

// Freeing an object waits until the program has acknowledged the events that it has read. Without the lock.
void EndAcknowledging(Cq* cq);
void EndAcknowledging(Qp* qp);
void EndAcknowledging(Srq* srq);

/// Opens the queue of a context's asynchronous events. @returns 0 or an errno
int OpenAsyncQueue(Context* context);

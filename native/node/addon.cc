// The addon: objects and functions of Node-API in front of core, and what only Node needs, such as the event loop,
// AF_XDP and libbpf. src/native.ts declares and documents each export.
//
// Invariants:
// - A function makes one system call or one batch of them, and returns a count, a file descriptor or -errno.
// - src/ checks the arguments and words the errors. The addon checks the address and length of each descriptor.
// - Only Poller calls into JavaScript, and only from the event loop. Only eventfdWait, futexWait, netlinkExchange
//   and notify sleep. CardThread.join waits for the thread's last turns.
//
// Threads: each Node environment (the main thread, a worker thread) loads its own instance, whose objects and file
// descriptors (fds.h) belong to it and end with it. Environments share what core shares between threads.
#include <napi.h>

#include "exports.h"

static Napi::Object Init(Napi::Env, Napi::Object exports) {
  DefineCrc(exports);
  DefinePacketSocket(exports);
  DefineUdpSockets(exports);
  DefineAdoptedSocket(exports);
  DefineCardThread(exports);
  DefineFutexes(exports);
  DefineErrorSocket(exports);
  DefineXskSocket(exports);
  DefineRingIcrc(exports);
  DefineJoinGroup(exports);
  DefinePoller(exports);
  DefineFds(exports);
  DefineEventfds(exports);
  DefineNameLocks(exports);
  DefineNetlink(exports);
  DefineLibbpf(exports);
  DefineNotify(exports);
  DefineRegions(exports);
  DefineReleasePages(exports);
  DefineTaps(exports);
  DefineUnixSockets(exports);
  DefinePortGroups(exports);
  DefineLastFrames(exports);
  return exports;
}

NODE_API_MODULE(wasm_roce, Init)

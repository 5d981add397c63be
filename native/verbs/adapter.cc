#include "adapter.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <sstream>
#include <utility>

#include "card_codes.h"
#include "core/address.h"
#include "core/blockedsignals.h"
#include "core/clock.h"
#include "core/eventfd.h"
#include "core/faultguard.h"
#include "core/fd.h"
#include "devicefiles.h"
#include "devicestat.h"
#include "limits.h"
#include "objects.h"
#include "report.h"
#include "settings.h"

namespace {

// The card's sizes, as in src/device/card.ts.
constexpr uint32_t kTxSlotBytes = 4608, kTxSlots = 128;
/// A slot holds a super-packet, and begins a page.
constexpr uint32_t kRxSlotBytes = (kCoalescedBytes + 4095) & ~4095u, kRxSlots = 128;
/// As GSO_LIMITS and DEFAULT_BUFFER_BYTES of src/link/sockets.ts.
constexpr uint32_t kBurstPackets = 64, kBurstBytes = 65535 - 14 - 4 - 40 - 8;
constexpr int kBufferBytes = 8 << 20;
/// The bits of queue pair numbers that the broker gives to the adapter.
constexpr uint32_t kSlotBits = 0xff0000, kSlotShift = 16;

/// Most frames that one turn moves in each direction.
constexpr uint32_t kTurnFrames = 128;
/// Most turns of Flush: received frames may keep turns busy without end.
constexpr int kFlushTurns = 64;
/// A thread that polls calls again within this time. The engine looks at the sockets for a while after a longer pause.
constexpr int64_t kPause = 5'000;
constexpr int64_t kWatchTime = kSecond / 1000;
/// A thread that polls looks at the sockets after this time, although its queue is not empty.
constexpr int64_t kMaxBlind = 50'000;
/// Delay before frames that the kernel has not taken are offered again.
constexpr int64_t kSendRetry = kSecond / 10'000;
/// Longest sleep of the engine.
constexpr int64_t kMaxSleep = 10 * kSecond;

/// File descriptors that the engine waits for, and those of them that are no sockets of frames.
enum Waits : size_t { kWake, kLook, kBroker, kGate, kOwnWaits };
/// Longest time that Flush waits for the frames that pass the gate.
constexpr int64_t kGateTime = kSecond / 10;

/// Returns whether a read goes on after any signal that the process handles: SA_RESTART. ppoll never does.
bool GoesOnAfterSignals() {
  for (int signal = 1; signal <= SIGRTMAX; signal++) {
    struct sigaction action;
    if (sigaction(signal, nullptr, &action) != 0) continue;
    const bool isHandled = action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
    if (isHandled && !(action.sa_flags & SA_RESTART)) return false;
  }
  return true;
}

uint8_t* MapMemory(uint64_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<uint8_t*>(at);
}

/// Never destroyed: threads of the program may outlive main.
Adapter* opened = nullptr;
bool hasTried = false;

std::mutex& OpenMutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

}  // namespace

Adapter* Adapter::Get() {
  const std::lock_guard<std::mutex> lock(OpenMutex());
  if (opened == nullptr && !hasTried) {
    hasTried = true;
    opened = Open();
  }
  if (opened == nullptr) errno = ENODEV;
  return opened;
}

Adapter* Adapter::Open() {
  Port port;
  std::string why;
  if (!port.Find(why)) {
    Refuse("%s", why.c_str());
    return nullptr;
  }
  static const int atFork = pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
  auto* adapter = new Adapter(port);
  if (atFork == 0 && adapter->Start()) {
    ReportAtExit(*adapter);
    return adapter;
  }
  delete adapter;
  return nullptr;
}

Adapter::Adapter(const Port& port)
    : memory_(MapMemory(kCardMemory)),
      regions_(Regions::Of(memory_, kCardMemory)),
      card_(memory_, kCardMemory, *regions_),
      port_(port) {}

bool Adapter::Start() {
  if (memory_ == nullptr) return Refuse("the card has no memory: %s", strerror(errno));
  if (!OpenSockets()) return false;
  capture_ = Capture::Open(port_.Name());
  if (!OpenCard()) return false;
  const FrameLayout layout = Layout();
  tx_.Attach(memory_, layout.tx);
  sockets_.Attach(memory_, kCardMemory, layout);
  if (capture_ != nullptr) capture_->Attach(memory_, layout);
  if (const int error = CatchFaults()) return Refuse("no handler of faults: %s", strerror(error));
  wakeFd_ = OpenEventfd();
  if (wakeFd_ < 0) return Refuse("no eventfd: %s", strerror(-wakeFd_));
  lookFd_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (lookFd_ < 0) return Refuse("no timer: %s", strerror(errno));
  waits_ = {{wakeFd_, POLLIN, 0}, {lookFd_, POLLIN, 0}, {broker_.Fd(), POLLIN, 0}, {-1, POLLIN, 0}};
  WatchSockets();
  if (!SetFaults()) return false;
  const BlockedSignals blocked;
  const auto run = [](void* self) -> void* {
    static_cast<Adapter*>(self)->RunEngine();
    return nullptr;
  };
  const int refused = pthread_create(&engine_, nullptr, run, this);
  return refused == 0 || Refuse("its thread does not start: %s", strerror(refused));
}

bool Adapter::OpenSockets() {
  if (broker_.Join(port_.Gids()) == Broker::Result::kRefused) return false;
  for (const Gid& gid : port_.Gids()) {
    const uint8_t* ip = gid.IsIpv4() ? gid.raw + 12 : gid.raw;
    const int result = OpenSocket(gid, SocketAddress(ip, gid.IsIpv4() ? 4 : 16, kRocePort, gid.scope));
    if (result == -EADDRINUSE)
      return Refuse("UDP port 4791 of %s is taken by another program, or by an rxe device. Programs share an address "
                    "through a broker: wasm-roce run, or wasm-roce broker", gid.Text().c_str());
    if (result == -ECONNREFUSED) return false;
    if (result != 0) return Refuse("UDP port 4791 of %s cannot be opened: %s", gid.Text().c_str(), strerror(-result));
  }
  usesGso_ = sockets_.SupportsGso();
  return true;
}

/// @returns 0 or -errno; ECONNREFUSED after a line on stderr
int Adapter::OpenSocket(const Gid& gid, const sockaddr_in6& address) {
  if (!broker_.HasJoined()) return sockets_.Add(address, kBufferBytes, port_.Interface());
  int fd = broker_.SocketOf(gid);
  if (fd < 0) return -ECONNREFUSED;
  const int result = sockets_.Adopt(fd, address, kBufferBytes, port_.Interface());
  CloseFd(fd);
  return result;
}

bool Adapter::OpenCard() {
  uint32_t refused = 0;
  const bool works = Call([&](w2c_card* card) {
    scratch_ = w2c_card_scratch(card);
    if (getrandom(At(scratch_), 32, 0) != 32) return;
    refused = w2c_card_open(card, kCardMemory, kTxSlotBytes, kTxSlots, kRxSlotBytes, kRxSlots, kMaxQp, kMaxMr);
    if (refused == 0 && broker_.HasJoined()) refused = w2c_card_setQpn(card, kSlotBits, broker_.Slot() << kSlotShift);
  });
  if (refused != 0) return Refuse("the card refuses its sizes: %s", strerror(static_cast<int>(refused)));
  TellAddresses();
  SetLink();
  return works;
}

/// Tells the card its addresses, for which alone it accepts datagrams, and its MTU.
void Adapter::TellAddresses() {
  Call([&](w2c_card* card) {
    uint32_t at = scratch_;
    for (const Gid& gid : port_.Gids()) {
      memcpy(At(at), gid.raw, sizeof gid.raw);
      at += sizeof gid.raw;
    }
    w2c_card_setPort(card, static_cast<uint32_t>(port_.Gids().size()), port_.ActiveMtu());
  });
}

void Adapter::SetLink() {
  // captures and rules of faults have whole packets: the link neither cuts them out of larger ones nor completes them
  const bool isWhole = capture_ != nullptr || gate_ != nullptr;
  const bool usesGso = usesGso_ && !isWhole;
  const uint32_t packets = usesGso ? kBurstPackets : 0, bytes = usesGso ? kBurstBytes : 0;
  const uint32_t port = broker_.HasJoined() ? 0u : +LinkFlag::FIXED_SOURCE_PORT;
  const uint32_t flags = port | (isWhole ? 0u : +LinkFlag::ICRC_OFFLOAD);
  Call([=](w2c_card* card) { w2c_card_setLink(card, flags, kRocePort, packets, bytes); });
}

FrameLayout Adapter::Layout() {
  uint32_t tx = 0, rx = 0;
  Call([&](w2c_card* card) {
    tx = w2c_card_txRing(card);
    rx = w2c_card_rxRing(card);
  });
  const bool isWhole = capture_ != nullptr;
  return {LayoutOf(tx), LayoutOf(rx), isWhole ? kTxSlotBytes : kRxSlotBytes, isWhole ? 0u : 1u};
}

RingLayout Adapter::LayoutOf(uint32_t ring) const {
  return {ring + RingOffset::PRODUCER, ring + RingOffset::CONSUMER, ring + RingOffset::DESCRIPTORS,
          Read<uint32_t>(ring + RingOffset::MASK)};
}

/// A call begins that takes turns. @returns the time
int64_t Adapter::Called() {
  const int64_t now = MonotonicTime();
  if (now - calledAt_ > kPause) pausedAt_ = now;
  return now;
}

void Adapter::Posted() {
  Called();
  Turn(false);
  KeepDeadline();
  calledAt_ = MonotonicTime();
}

void Adapter::Poll(bool isEmpty) {
  calledAt_ = Called();
  if (!isEmpty && calledAt_ - lookedAt_ < kMaxBlind) return;
  Turn(true);
  KeepDeadline();
  calledAt_ = MonotonicTime();
}

int Adapter::OpenRdmaCm(int& commands, int& events) {
  const Lock lock = Hold();
  const bool isOpen = broker_.OpenRdmaCm(port_, commands, events);
  HeedBroker();
  return isOpen ? 0 : ENODEV;
}

bool Adapter::FindIdleRules(std::vector<std::string>& rules) {
  const Lock lock = Hold();
  return broker_.FindRulesWithoutHits(rules);
}

/// Whether a thread polls, without pauses.
bool Adapter::IsPolled(int64_t now) const { return now - calledAt_ <= kPause && now - pausedAt_ > kWatchTime; }

int Adapter::Wait(int fd) {
  bool leads;
  std::vector<pollfd> waits{{fd, POLLIN, 0}};
  {
    const Lock lock = Hold();
    leads = Lead();
    if (leads) waits.insert(waits.end(), waits_.begin() + kOwnWaits, waits_.end());
  }
  int result;
  pthread_cleanup_push(EndCancelledLead, leads ? this : nullptr);
  result = ppoll(waits.data(), waits.size(), nullptr, nullptr) < 0 ? errno : 0;
  pthread_cleanup_pop(0);
  if (leads) {
    const Lock lock = Hold();
    EndLead();
    while (result == 0 && Turn(true) > 0) {
    }
    KeepDeadline();
  }
  return result == EINTR && GoesOnAfterSignals() ? 0 : result;
}

/// Takes over the turns, if no other thread takes them. @returns whether it has
bool Adapter::Lead() {
  if (isLed_ || IsPolled(MonotonicTime())) return false;
  isLed_ = true;
  // both would wake up for each frame
  if (isAsleep_ && sleepWatches_) WakeEngine();
  return true;
}

/// The engine takes the turns after a while, if the program does not come back.
void Adapter::EndLead() {
  isLed_ = false;
  if (isLookSet_) return;
  isLookSet_ = true;
  const itimerspec after{{0, 0}, {0, kWatchTime}};
  timerfd_settime(lookFd_, 0, &after, nullptr);
}

void Adapter::EndCancelledLead(void* adapter) {
  auto* self = static_cast<Adapter*>(adapter);
  if (self == nullptr) return;
  const Lock lock = self->Hold();
  self->EndLead();
}

uint16_t Adapter::SourcePortTo(uint32_t gidIndex, uint32_t remoteQpn) {
  if (!broker_.HasJoined()) return kRocePort;
  return sourcePorts_.To(sockets_, port_.Gids()[gidIndex], remoteQpn, kBufferBytes);
}

void Adapter::Flush() {
  for (int turns = 0; turns < kFlushTurns && Turn(true) > 0; turns++) {
  }
  if (gate_ == nullptr) return;
  gate_->Mark();
  const int64_t until = MonotonicTime() + kGateTime;
  while (gate_ != nullptr && gate_->IsMarked() && MonotonicTime() < until) {
    pollfd wait{gate_->Fd(), POLLIN, 0};
    poll(&wait, 1, static_cast<int>(kGateTime * 1000 / kSecond));
    Turn(true);
  }
}

int Adapter::JoinGroup(const uint8_t gid[16]) {
  const auto scope = static_cast<uint32_t>(port_.Interface());
  const sockaddr_in6 address =
      IsIpv4Mapped(gid) ? SocketAddress(gid + 12, 4, kRocePort, 0) : SocketAddress(gid, 16, kRocePort, scope);
  const int result = sockets_.JoinGroup(address, kBufferBytes, port_.Interface());
  WatchSockets();
  return result < 0 ? -result : 0;
}

void Adapter::LeaveGroup(const uint8_t gid[16]) {
  const size_t bytes = IsIpv4Mapped(gid) ? 4 : 16;
  sockets_.LeaveGroup(gid + sizeof(ibv_gid) - bytes, bytes);
  WatchSockets();
}

/// The sockets have changed.
void Adapter::WatchSockets() {
  waits_.resize(kOwnWaits);
  for (const int fd : sockets_.Fds()) waits_.push_back({fd, POLLIN, 0});
  if (isAsleep_ && sleepWatches_) WakeEngine();
}

uint32_t Adapter::Turn(bool receives) {
  const int64_t time = MonotonicTime();
  if (receives) lookedAt_ = time;
  uint32_t moved = receives ? sockets_.Receive() : 0;
  if (capture_ != nullptr) capture_->Received();
  const auto now = static_cast<double>(time);
  if (gate_ != nullptr) moved += ReceiveByGate(now);
  Call([&](w2c_card* card) {
    if (gate_ == nullptr) moved += w2c_card_rx(card, now, kTurnFrames);
    w2c_card_expire(card, now);
  });
  // before the system call that sends: a thread that waits for an event wakes up meanwhile
  DispatchEvents();
  if (gate_ != nullptr)
    moved += SendByGate(now);
  else
    Call([&](w2c_card* card) { moved += w2c_card_tx(card, now, kTurnFrames); });
  if (tx_.Producer() == tx_.Consumer()) {
    DropLostMemory();
    return moved;
  }
  const int32_t sent = Send();
  DropLostMemory();
  if (sent >= 0) return moved + static_cast<uint32_t>(sent);
  usesGso_ = false;
  SetLink();
  return moved + static_cast<uint32_t>(~sent);
}

int32_t Adapter::Send() {
  if (capture_ == nullptr) return sockets_.Send();
  capture_->BeforeSend();
  const int32_t sent = sockets_.Send();
  capture_->Sent();
  return sent;
}

/// Gives the frames of the receive ring to the gate, and those that have passed it to the card and the link.
uint32_t Adapter::ReceiveByGate(double now) {
  uint32_t moved = gate_->TakeReceived();
  gate_->Exchange();
  Gate::Frame frame;
  bool isWhole = true;
  for (; isWhole && gate_->Front(frame); moved++) {
    isWhole = PassOn(frame, now);
    if (isWhole) gate_->Pop();
  }
  if (!isWhole || !gate_->HasEnded()) return moved;
  SetGate(nullptr);
  return moved + 1;
}

/// @returns false if there is no room for the frame
bool Adapter::PassOn(const Gate::Frame& frame, double now) {
  if (frame.isReceived) {
    if (frame.bytes > kRxSlotBytes) return true;
    memcpy(At(gateSlot_), frame.data, frame.bytes);
    return Call([&](w2c_card* card) { w2c_card_rxFrame(card, now, gateSlot_, frame.bytes, frame.options); }) || true;
  }
  if (tx_.Free() == 0) return false;
  if (frame.bytes > kTxSlotBytes) return true;
  const uint32_t at = tx_.Producer();
  Descriptor& to = tx_[at];
  memcpy(At(static_cast<uint32_t>(to.addr)), frame.data, frame.bytes);
  to.len = frame.bytes;
  to.options = frame.options;
  tx_.SetProducer(at + 1);
  return true;
}

/// Lets the card transmit, and gives the frames to the gate.
uint32_t Adapter::SendByGate(double now) {
  uint32_t sent = 0;
  for (uint32_t count = 1; count > 0 && gate_->HasRoom() && tx_.Free() > 0; sent += count) {
    count = 0;
    Call([&](w2c_card* card) { count = w2c_card_tx(card, now, 1); });
    if (count > 0) gate_->TakeSent();
  }
  gate_->Exchange();
  return sent;
}

/// Opens the gate, or ends it: null.
void Adapter::SetGate(std::unique_ptr<Gate> gate) {
  if (gate != nullptr && gateSlot_ == 0)
    Call([&](w2c_card* card) { gateSlot_ = w2c_card_ringAlloc(card, kRxSlotBytes); });
  if (gate != nullptr && gateSlot_ == 0) {
    fputs("wasm-roce: rules of faults are not in force: the card has no memory left\n", stderr);
    return;
  }
  gate_ = std::move(gate);
  waits_[kGate].fd = gate_ == nullptr ? -1 : gate_->Fd();
  if (gate_ != nullptr) gate_->Attach(memory_, Layout());
  SetLink();
  if (isAsleep_) WakeEngine();
}

/// Memory that the program has unmapped loses its keys, so that the requests that use it fail.
void Adapter::DropLostMemory() {
  while (const uint32_t region = regions_->TakeLost()) {
    Mr* const mr = keys_.OfRegion(region);
    if (mr == nullptr) continue;
    Call([&](w2c_card* card) { mr->isLost = w2c_card_mrDereg(card, mr->handle) == 0; });
  }
}

void Adapter::DispatchEvents() {
  for (uint32_t event = 1; event != 0;) {
    uint32_t type = 0, handle = 0;
    const bool works = Call([&](w2c_card* card) {
      event = w2c_card_eventPeek(card);
      if (event == 0) return;
      type = Read<uint32_t>(event + EventOffset::TYPE);
      handle = Read<uint32_t>(event + EventOffset::HANDLE);
      w2c_card_eventPop(card, event);
    });
    if (!works || event == 0) return;
    events_.Dispatch(type, handle);
  }
}

/// The broker may have ended. Another one knows the slot as long as some of the programs live.
void Adapter::KeepBroker() {
  if (!broker_.Keep(MonotonicTime())) Fail("the broker that has followed another one does not know this program");
  waits_[kBroker].fd = broker_.Fd();
  HeedBroker();
}

/// Has the rules of faults that the environment names be in force from the first frame on. @returns false after a line
/// on stderr
bool Adapter::SetFaults() {
  const char* setting = Setting("WASM_ROCE_FAULT");
  if (setting == nullptr) return true;
  if (!broker_.HasJoined())
    return Refuse("rules of faults (WASM_ROCE_FAULT) need the broker: wasm-roce run, or wasm-roce broker");
  std::vector<std::string> rules;
  std::istringstream lines(setting);
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) rules.push_back(line);
  const char* seed = Setting("WASM_ROCE_FAULT_SEED");
  char* end = nullptr;
  const int64_t number = seed == nullptr ? 1 : strtoll(seed, &end, 10);
  if (seed != nullptr && *end != 0) return Refuse("WASM_ROCE_FAULT_SEED is '%s', not a whole number", seed);
  std::string why;
  if (!broker_.SetFaults(rules, number, why)) return Refuse("WASM_ROCE_FAULT: %s", why.c_str());
  HeedBroker();
  return true;
}

/// Does what the broker has asked for.
void Adapter::HeedBroker() {
  const Broker::Wishes wishes = broker_.TakeWishes();
  if (wishes.gate >= 0) SetGate(std::make_unique<Gate>(wishes.gate));
  if (wishes.stat) broker_.SendStat(DeviceStat(*this, broker_.Slot(), sockets_.Counters()));
  if (wishes.host) ShowHost(wishes);
}

/// Shows the events of the host that rules of faults pretend.
void Adapter::ShowHost(const Broker::Wishes& wishes) {
  const bool wasActive = port_.IsActive();
  const bool isChanged = port_.Show(wishes.isDown, wishes.gids);
  TellAddresses();
  ShowPort(port_);
  if (port_.IsActive() != wasActive) events_.Report(wasActive ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
  if (isChanged) events_.Report(IBV_EVENT_GID_CHANGE);
  if (wishes.hasFailed) Fail("the rule of faults 'device failure'");
}

/// Returns when a turn is due although nothing arrives; 0 = never.
double Adapter::Deadline() {
  double deadline = 0;
  Call([&](w2c_card* card) { deadline = w2c_card_nextDeadline(card); });
  const bool isGateBusy = gate_ != nullptr && gate_->IsBusy();
  if (tx_.Producer() == tx_.Consumer() && !isGateBusy) return deadline;
  const auto retry = static_cast<double>(MonotonicTime() + kSendRetry);
  return deadline == 0 ? retry : std::min(deadline, retry);
}

void Adapter::KeepDeadline() {
  if (!isAsleep_) return;
  const double deadline = Deadline();
  if (deadline != 0 && deadline < static_cast<double>(sleepsUntil_)) WakeEngine();
}

void Adapter::WakeEngine() {
  // once for each sleep
  isAsleep_ = false;
  SignalEventfd(wakeFd_);
}

void Adapter::RunEngine() {
  prctl(PR_SET_NAME, "wasm-roce card");
  mutex_.lock();
  for (;;) {
    TakeEngineTurn();
    // a thread that calls gets the lock
    mutex_.unlock();
    mutex_.lock();
  }
}

void Adapter::TakeEngineTurn() {
  const int64_t now = MonotonicTime();
  if (isLed_) {
    Turn(false);
    return SleepEngine();
  }
  if (IsPolled(now)) return SleepEngine();
  const bool isPause = now - calledAt_ > kPause;
  if (Turn(true) == 0) return SleepEngine();
  if (isPause) pausedAt_ = now;
}

void Adapter::SleepEngine() {
  const int64_t now = MonotonicTime();
  const bool isPolled = IsPolled(now);
  sleepWatches_ = !isLed_ && !isPolled && !hasFailed_;
  const double deadline = Deadline();
  sleepsUntil_ = deadline == 0 ? now + kMaxSleep : std::min(static_cast<int64_t>(deadline), now + kMaxSleep);
  // the thread that polls has the deadlines, too, as long as it does
  if (isPolled && !isLed_) sleepsUntil_ = now + kWatchTime;
  if (hasFailed_) sleepsUntil_ = now + kMaxSleep;
  const int64_t brokerDue = broker_.Deadline();
  if (brokerDue != 0) sleepsUntil_ = std::min(sleepsUntil_, brokerDue);
  isAsleep_ = true;
  const int64_t duration = std::max<int64_t>(sleepsUntil_ - now, 0);
  const timespec time{duration / kSecond, duration % kSecond};
  engineWaits_ = waits_;
  if (!sleepWatches_) engineWaits_.resize(kOwnWaits);
  if (isPolled && !isLed_) engineWaits_[kGate].fd = -1;
  mutex_.unlock();
  ppoll(engineWaits_.data(), engineWaits_.size(), &time, nullptr);
  mutex_.lock();
  isAsleep_ = false;
  if (engineWaits_[kBroker].revents != 0 || (brokerDue != 0 && MonotonicTime() >= brokerDue)) KeepBroker();
  if (engineWaits_[kWake].revents != 0) ClearEventfd(wakeFd_);
  if (engineWaits_[kLook].revents != 0) {
    uint64_t times;
    if (read(lookFd_, &times, sizeof times) > 0) isLookSet_ = false;
  }
}

void Adapter::Fail(const char* reason) {
  hasFailed_ = true;
  fprintf(stderr, "wasm-roce: the card has failed: %s\n", reason);
  events_.Report(IBV_EVENT_DEVICE_FATAL);
}

void Adapter::BeforeFork() {
  OpenMutex().lock();
  if (opened != nullptr) opened->mutex_.lock();
}

void Adapter::AfterForkInParent() {
  if (opened != nullptr) opened->mutex_.unlock();
  OpenMutex().unlock();
}

/// The parent keeps the sockets. The child cannot use the adapter that it inherits, and may open one of its own.
void Adapter::AfterForkInChild() {
  Adapter* const inherited = opened;
  opened = nullptr;
  hasTried = false;
  if (inherited != nullptr) {
    inherited->hasFailed_ = true;
    inherited->sockets_.Close();
    inherited->broker_.Leave();
    inherited->capture_.reset();
    inherited->gate_.reset();
    close(inherited->wakeFd_);
    close(inherited->lookFd_);
    inherited->mutex_.unlock();
  }
  OpenMutex().unlock();
}

#include "capture.h"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "core/blockedsignals.h"
#include "core/clock.h"
#include "core/fd.h"
#include "settings.h"

namespace {

// draft-ietf-opsawg-pcapng
constexpr uint32_t kSection = 0x0a0d0d0a, kInterface = 1, kPacket = 6;
constexpr uint32_t kByteOrder = 0x1a2b3c4d, kVersion = 1, kLengthUnknown = 0xffffffff, kEthernet = 1;
constexpr uint32_t kEnd = 0, kUserApplication = 4, kInterfaceName = 2, kTimeResolution = 9, kPacketFlags = 2;
constexpr uint8_t kNanoseconds = 9;

/// Takes the SIGPIPE of a write, which is blocked, away from the thread.
void TakePipeSignal() {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  constexpr timespec kNow{};
  sigtimedwait(&pipe, nullptr, &kNow);
}

}  // namespace

std::unique_ptr<Capture> Capture::Open(const std::string& interfaceName) {
  const char* path = Setting("WASM_ROCE_PCAP");
  if (path == nullptr) return nullptr;
  const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    fprintf(stderr, "wasm-roce: there is no capture: %s: %s\n", path, strerror(errno));
    return nullptr;
  }
  std::unique_ptr<Capture> capture(new Capture(fd));
  capture->AddHeader(interfaceName);
  capture->Write();
  return capture;
}

Capture::~Capture() { CloseFd(fd_); }

void Capture::Attach(uint8_t* memory, const FrameLayout& layout) {
  memory_ = memory;
  tx_.Attach(memory, layout.tx);
  rx_.Attach(memory, layout.rx);
  received_ = rx_.Producer();
}

void Capture::Received() {
  const uint32_t end = rx_.Producer();
  if (received_ == end) return;
  for (; received_ != end; received_++) AddFrame(Direction::kInbound, rx_[received_]);
  Write();
}

void Capture::BeforeSend() {
  // the link may exchange the slots of frames that it has sent
  sent_ = tx_.Consumer();
  sending_.clear();
  for (uint32_t n = sent_; n != tx_.Producer(); n++) sending_.push_back(tx_[n]);
}

void Capture::Sent() {
  const uint32_t count = tx_.Consumer() - sent_;
  if (count == 0) return;
  for (uint32_t i = 0; i < count; i++) AddFrame(Direction::kOutbound, sending_[i]);
  Write();
}

void Capture::AddHeader(const std::string& interfaceName) {
  const std::string program = std::string("wasm-roce ") + WASM_ROCE_VERSION + ", " + program_invocation_short_name +
                              " (process " + std::to_string(getpid()) + ")";
  size_t start = BeginBlock(kSection);
  for (const uint32_t word : {kByteOrder, kVersion, kLengthUnknown, kLengthUnknown}) Add(word);
  AddOption(kUserApplication, program.data(), static_cast<uint32_t>(program.size()));
  Add(kEnd);
  EndBlock(start);
  start = BeginBlock(kInterface);
  Add(kEthernet);
  Add(0);  // frames have any length
  AddOption(kInterfaceName, interfaceName.data(), static_cast<uint32_t>(interfaceName.size()));
  AddOption(kTimeResolution, &kNanoseconds, sizeof kNanoseconds);
  Add(kEnd);
  EndBlock(start);
}

void Capture::AddFrame(Direction direction, const Descriptor& frame) {
  if (frame.len == 0) return;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const auto time = static_cast<uint64_t>(Nanoseconds(now));
  const size_t start = BeginBlock(kPacket);
  Add(0);  // the only interface of the section
  Add(static_cast<uint32_t>(time >> 32));
  Add(static_cast<uint32_t>(time));
  Add(frame.len);
  Add(frame.len);
  Add(memory_ + frame.addr, frame.len);
  AddOption(kPacketFlags, &direction, sizeof direction);
  Add(kEnd);
  EndBlock(start);
}

/// Adds bytes, and fills the last word.
void Capture::Add(const void* bytes, size_t count) {
  const auto* from = static_cast<const uint8_t*>(bytes);
  blocks_.insert(blocks_.end(), from, from + count);
  blocks_.resize((blocks_.size() + 3) & ~size_t{3});
}

void Capture::AddOption(uint32_t code, const void* value, uint32_t bytes) {
  Add(code | bytes << 16);
  Add(value, bytes);
}

/// @returns the offset of its beginning
size_t Capture::BeginBlock(uint32_t type) {
  const size_t start = blocks_.size();
  Add(type);
  Add(0);
  return start;
}

/// A block has its length in front and behind.
void Capture::EndBlock(size_t start) {
  const auto length = static_cast<uint32_t>(blocks_.size() - start + sizeof(uint32_t));
  Add(length);
  memcpy(blocks_.data() + start + sizeof(uint32_t), &length, sizeof length);
}

void Capture::Write() {
  // the end of a pipe's reader is no signal to the program
  const BlockedSignals blocked;
  const uint8_t* at = blocks_.data();
  size_t left = blocks_.size();
  while (fd_ >= 0 && left > 0) {
    const ssize_t written = write(fd_, at, left);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      fprintf(stderr, "wasm-roce: the capture ends: %s\n", strerror(errno));
      if (errno == EPIPE) TakePipeSignal();
      CloseFd(fd_);
      break;
    }
    at += written;
    left -= static_cast<size_t>(written);
  }
  blocks_.clear();
}

// The capture of a program's frames for Wireshark (run --pcap), as pcapng: the blocks of src/link/pcapng.ts.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/frames.h"

/// The adapter's lock protects it.
class Capture {
 public:
  /// Returns the capture that the program is to have (WASM_ROCE_PCAP). Null: it is to have none, or the file cannot be
  /// written; then a line on stderr says why. Processes append to one file, each a section of its own.
  static std::unique_ptr<Capture> Open(const std::string& interfaceName);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Records the frames of these rings.
  void Attach(uint8_t* memory, const FrameLayout& layout);
  /// The link has received frames, and the card has not taken them yet.
  void Received();
  /// The link is about to send frames, and has sent as many as it could.
  void BeforeSend();
  void Sent();

 private:
  enum class Direction : uint32_t { kInbound = 1, kOutbound = 2 };

  explicit Capture(int fd) : fd_(fd) {}
  void AddHeader(const std::string& interfaceName);
  void AddFrame(Direction direction, const Descriptor& frame);
  void Add(uint32_t word) { Add(&word, sizeof word); }
  void Add(const void* bytes, size_t count);
  void AddOption(uint32_t code, const void* value, uint32_t bytes);
  size_t BeginBlock(uint32_t type);
  void EndBlock(size_t start);
  /// Writes the blocks. A file that cannot be written any more ends the capture, not the program.
  void Write();

  int fd_;
  const uint8_t* memory_ = nullptr;
  Ring tx_, rx_;
  uint32_t received_ = 0, sent_ = 0;
  std::vector<Descriptor> sending_;
  std::vector<uint8_t> blocks_;
};

// Fuzzes what core does with bytes that it did not write: frames of the card, and datagrams of the network. Without
// libFuzzer it takes COUNT inputs, which are derived from valid frames:
//   core_fuzzer COUNT SEED
#include <cstdio>
#include <cstdlib>
#include <random>

#include "card.h"
#include "core/grosplitter.h"
#include "core/icrc.h"

namespace {

/// Writes each header that is made from a datagram, as the sockets do.
void UseHeaders(std::vector<uint8_t> frame) {
  Datagram datagram;
  if (!ParseUdp(frame.data(), static_cast<uint32_t>(frame.size()), datagram)) return;
  if (datagram.headerBytes > kMaxHeaderBytes || datagram.payload + datagram.payloadBytes > frame.data() + frame.size())
    abort();
  std::vector<uint8_t> headers(frame.begin(), frame.begin() + datagram.headerBytes);
  SetPayloadBytes(headers.data(), datagram, datagram.payloadBytes / 2);
  SetPseudoHeaderSum(headers.data(), datagram);
  SetSegment(headers.data(), datagram, 3, 100);
  FoldIcrc(datagram.payload, datagram.payloadBytes);
}

/// Sends and receives the frame between rings whose descriptors may say anything.
void UseRings(const uint8_t* bytes, size_t size, uint32_t options) {
  Card card(8, 4096, true);
  card.Send({bytes, bytes + std::min<size_t>(size, 4096)}, options);
  if (size > 16) memcpy(&card.frames.tx[1], bytes, sizeof(Descriptor));
  card.frames.tx.SetProducer(2);
  card.frames.CompleteIcrcs();
  GroSplitter splitter;
  splitter.Open();
  Frames& large = splitter.LargeRing();
  large.rx[0].len = static_cast<uint32_t>(size);
  large.rx[0].options = options & ~((1u << kRxSegmentShift) - 1);
  memcpy(large.At(large.rx[0].addr, size), bytes, size);
  large.rx.SetProducer(1);
  FrameCounters counters;
  for (int call = 0; call < 20 && !splitter.IsEmpty(); call++) {
    splitter.SplitInto(card.frames, counters);
    while (card.frames.rx.Filled() > 0) card.Receive();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size < 4 || size > kCoalescedBytes) return 0;
  uint32_t options;
  memcpy(&options, bytes, sizeof options);
  UseHeaders({bytes + 4, bytes + size});
  UseRings(bytes + 4, size - 4, options);
  return 0;
}

#ifndef WASM_ROCE_LIBFUZZER
int main(int count, char** words) {
  const unsigned long inputs = count > 1 ? strtoul(words[1], nullptr, 10) : 100000;
  const unsigned long seed = count > 2 ? strtoul(words[2], nullptr, 10) : std::random_device{}();
  printf("seed %lu\n", seed);
  fflush(stdout);
  std::mt19937 random(static_cast<uint32_t>(seed));
  const auto below = [&](size_t limit) { return static_cast<size_t>(random() % limit); };
  for (unsigned long i = 0; i < inputs; i++) {
    const auto payload = Payload(below(i % 50 == 0 ? 60000 : 3000), random());
    auto frame = below(2) ? Frame(Address4("10.0.0.1", 4791), Address4("10.0.0.2", 4791), payload)
                          : Frame(Address6("fd00::1", 4791), Address6("fd00::2", 4791), payload);
    if (below(3) == 0) frame.insert(frame.begin() + 12, {0x81, 0x00, 0x00, 0x01});
    for (size_t k = below(6); k > 0; k--) frame[below(std::min<size_t>(frame.size(), 80))] = static_cast<uint8_t>(random());
    if (below(4) == 0) frame.resize(below(frame.size() + 1));
    const auto options = static_cast<uint32_t>(random());
    frame.insert(frame.begin(), 4, 0);
    memcpy(frame.data(), &options, sizeof options);
    LLVMFuzzerTestOneInput(frame.data(), frame.size());
  }
  printf("%lu inputs\n", inputs);
}
#endif

#include "devicestat.h"

#include <fcntl.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>
#include <unistd.h>
#include <algorithm>
#include <cstdint>

#include "adapter.h"
#include "card_texts.h"
#include "core/fd.h"
#include "device.h"
#include "objects.h"

namespace {

using Writer = rapidjson::Writer<rapidjson::StringBuffer>;

/// Most bytes of a command: MAX_COMMAND of src/verbs/diagnose/stat.ts.
constexpr size_t kMaxCommand = 200;
/// In the order of ibv_qp_state.
constexpr const char* kStates[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

void Add(Writer& to, const char* name, const std::string& text) {
  to.Key(name);
  to.String(text.data(), static_cast<rapidjson::SizeType>(text.size()));
}

void Add(Writer& to, const char* name, uint64_t number) {
  to.Key(name);
  to.Uint64(number);
}

/// Returns the command line of the process, as much of it as there is room for.
std::string Command() {
  char text[kMaxCommand];
  int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  const ssize_t bytes = fd < 0 ? 0 : read(fd, text, sizeof text);
  CloseFd(fd);
  std::string command(text, static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  while (!command.empty() && command.back() == 0) command.pop_back();
  // other bytes than ASCII may be no text, or half a character
  for (char& each : command)
    if (each < ' ' || each > '~') each = each == 0 ? ' ' : '?';
  return command;
}

/// Adds the counters that the card has at an offset.
void AddCounters(Writer& to, const Adapter& adapter, uint32_t at) {
  for (const CodeText& each : kCounterNames)
    Add(to, each.text, at == 0 ? 0 : adapter.Read<uint64_t>(at + 8 * each.code));
}

const char* TypeOf(const ibv_qp& qp) {
  if (qp.qp_type == IBV_QPT_RC) return "RC";
  return qp.qp_type == IBV_QPT_UC ? "UC" : "UD";
}

void AddQp(Writer& to, Adapter& adapter, const Qp& qp) {
  uint32_t state = 0, counters = 0;
  adapter.Call([&](w2c_card* card) {
    state = w2c_card_qpState(card, qp.qp_base.handle);
    counters = w2c_card_qpCounters(card, qp.qp_base.handle);
  });
  to.StartObject();
  Add(to, "qpNum", qp.qp_base.qp_num);
  Add(to, "type", TypeOf(qp.qp_base));
  Add(to, "state", kStates[std::min<size_t>(state, std::size(kStates) - 1)]);
  if (qp.ahAttr.is_global != 0) {
    Gid peer{};
    memcpy(peer.raw, qp.ahAttr.grh.dgid.raw, sizeof peer.raw);
    to.Key("peer");
    to.StartObject();
    Add(to, "address", peer.Text());
    Add(to, "qpNum", qp.destQpn);
    to.EndObject();
  }
  to.Key("counters");
  to.StartObject();
  AddCounters(to, adapter, counters);
  to.EndObject();
  to.EndObject();
}

}  // namespace

std::string DeviceStat(Adapter& adapter, uint32_t slot, const FrameCounters& link) {
  rapidjson::StringBuffer buffer;
  Writer to(buffer);
  const Port& port = adapter.ThePort();
  to.StartObject();
  Add(to, "device", kDevice);
  Add(to, "command", Command());
  Add(to, "interface", port.Name());
  Add(to, "link", "udp");
  Add(to, "slot", slot);
  Add(to, "state", port.IsActive() ? "ACTIVE" : "DOWN");
  to.Key("addresses");
  to.StartArray();
  for (const Gid& each : port.Gids()) to.String(each.Text().c_str());
  to.EndArray();
  to.Key("counters");
  to.StartObject();
  uint32_t counters = 0;
  adapter.Call([&](w2c_card* card) { counters = w2c_card_counters(card); });
  AddCounters(to, adapter, counters);
  link.ForEach([&](const char* name, uint64_t count) { Add(to, (std::string("link.") + name).c_str(), count); });
  to.EndObject();
  to.Key("qps");
  to.StartArray();
  for (const Qp* each : adapter.TheEvents().Qps()) AddQp(to, adapter, *each);
  to.EndArray();
  to.EndObject();
  return {buffer.GetString(), buffer.GetSize()};
}

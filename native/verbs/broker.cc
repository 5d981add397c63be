#include "broker.h"

#include <poll.h>
#include <rapidjson/document.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/clock.h"
#include "core/fd.h"
#include "gate.h"
#include "settings.h"

namespace {

/// As PROTOCOL_VERSION of src/link/broker/protocol.ts.
constexpr const char* kVersion = "2";
/// Time for an answer: the broker may wait for programs of an earlier one.
constexpr int64_t kPatience = 10 * kSecond;
/// Time between two attempts to find a broker.
constexpr int64_t kRetry = kSecond / 20;
/// Requests but the first of a connection have this id.
constexpr uint32_t kGreetingId = 0, kRequestId = 1, kUnawaitedId = 2;

void CloseAll(std::vector<int>& fds) {
  for (int& fd : fds) CloseFd(fd);
  fds.clear();
}

/// Takes the first of the file descriptors, and closes the others. @returns -1 if there is none
int TakeFirst(std::vector<int>& fds) {
  const int first = fds.empty() ? -1 : fds[0];
  if (!fds.empty()) fds.erase(fds.begin());
  CloseAll(fds);
  return first;
}

/// Returns a text as it is in messages.
std::string Quoted(const std::string& text) {
  rapidjson::StringBuffer buffer;
  rapidjson::Writer<rapidjson::StringBuffer> writer(buffer);
  writer.String(text.data(), static_cast<rapidjson::SizeType>(text.size()));
  return buffer.GetString();
}

/// Returns an address as it is in messages.
std::string Text(const Gid& address) {
  return "\"address\":" + Quoted(address.Text()) + ",\"scope\":" + std::to_string(address.scope);
}

std::string Text(const std::vector<Gid>& addresses) {
  std::string text;
  for (const Gid& each : addresses) text += (text.empty() ? "{" : ",{") + Text(each) + "}";
  return "[" + text + "]";
}

std::string StringIn(const rapidjson::Document& message, const char* name) {
  const auto found = message.FindMember(name);
  if (found == message.MemberEnd() || !found->value.IsString()) return {};
  return {found->value.GetString(), found->value.GetStringLength()};
}

/// @returns UINT32_MAX if there is no such number
uint32_t NumberIn(const rapidjson::Document& message, const char* name) {
  const auto found = message.FindMember(name);
  return found != message.MemberEnd() && found->value.IsUint() ? found->value.GetUint() : UINT32_MAX;
}

bool IsTrue(const rapidjson::Document& message, const char* name) {
  const auto found = message.FindMember(name);
  return found != message.MemberEnd() && found->value.IsTrue();
}

std::vector<std::string> StringsIn(const rapidjson::Document& message, const char* name) {
  std::vector<std::string> strings;
  const auto found = message.FindMember(name);
  if (found == message.MemberEnd() || !found->value.IsArray()) return strings;
  for (const auto& each : found->value.GetArray())
    if (each.IsString()) strings.emplace_back(each.GetString(), each.GetStringLength());
  return strings;
}

/// Adds what a message that has no answer asks for.
void AddWish(const rapidjson::Document& message, std::vector<int>& fds, Broker::Wishes& to) {
  const std::string type = StringIn(message, "type");
  if (type == "gate" && fds.size() == 1) {
    CloseFd(to.gate);
    to.gate = TakeFirst(fds);
    // no frame goes another way: the caller looks at the wishes before it gives the lock away
    Gate::Begin(to.gate);
  } else if (type == "stat") {
    to.stat = true;
  } else if (type == "host") {
    to.host = true;
    to.isDown = IsTrue(message, "isDown");
    to.hasFailed = IsTrue(message, "hasFailed");
    to.gids = StringsIn(message, "gids");
  }
}

}  // namespace

Broker::Result Broker::Join(const std::vector<Gid>& addresses) {
  about_ = ",\"isServed\":true,\"addresses\":" + Text(addresses) + "}";
  const char* wanted = Setting("WASM_ROCE_BROKER");
  if (wanted != nullptr && strcmp(wanted, "off") == 0) return Result::kNone;
  if (wanted != nullptr && strcmp(wanted, "on") != 0) {
    Refuse("WASM_ROCE_BROKER is '%s', not 'on' or 'off'", wanted);
    return Result::kRefused;
  }
  const int64_t until = MonotonicTime() + kPatience;
  for (int64_t now = MonotonicTime(); now < until; now = MonotonicTime()) {
    if (connection_ < 0) {
      Connect(now);
      if (isAbsent_) return Result::kNone;
    }
    pollfd wait{connection_, POLLIN, 0};
    poll(&wait, 1, static_cast<int>(kRetry * 1000 / kSecond));
    Receive();
    if (HasJoined()) return Result::kDone;
    if (isRefused_) break;
  }
  Disconnect();
  search_.End();
  if (failure_.empty()) failure_ = "the broker does not answer within 10 s: is it stopped?";
  Refuse("%s", failure_.c_str());
  return Result::kRefused;
}

int Broker::SocketOf(const Gid& address) {
  Answer answer;
  if (!Ask("\"type\":\"socket\"," + Text(address), answer)) {
    Refuse("the broker lends no socket of %s: %s", address.Text().c_str(), failure_.c_str());
    return -1;
  }
  const int fd = TakeFirst(answer.fds);
  if (fd < 0) Refuse("the broker has lent no socket of %s", address.Text().c_str());
  return fd;
}

bool Broker::OpenRdmaCm(const Port& port, int& commands, int& events) {
  if (!HasJoined()) {
    fputs("wasm-roce: rdma_cm needs the broker: wasm-roce run, or wasm-roce broker\n", stderr);
    return false;
  }
  uint8_t guid[8];
  port.Guid(guid);
  std::string digits;
  for (const uint8_t byte : guid) digits += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  std::string addresses;
  for (const Gid& each : port.Gids()) addresses += (addresses.empty() ? "" : ",") + Quoted(each.Text());
  Answer answer;
  const bool isOpen = Ask("\"type\":\"rdmaCm\",\"interface\":" + Quoted(port.Name()) + ",\"guid\":" + Quoted(digits) +
                          ",\"addresses\":[" + addresses + "]", answer);
  if (isOpen && answer.fds.size() == 2) {
    commands = answer.fds[0];
    events = answer.fds[1];
    return true;
  }
  CloseAll(answer.fds);
  fprintf(stderr, "wasm-roce: the broker does not open rdma_cm: %s\n", failure_.c_str());
  return false;
}

bool Broker::SetFaults(const std::vector<std::string>& rules, int64_t seed, std::string& why) {
  std::string list;
  for (const std::string& each : rules) list += (list.empty() ? "" : ",") + Quoted(each);
  faults_ = "\"type\":\"faults\",\"seed\":" + std::to_string(seed) + ",\"rules\":[" + list + "]";
  Answer answer;
  if (Ask(faults_, answer)) return true;
  why = failure_;
  return false;
}

bool Broker::FindRulesWithoutHits(std::vector<std::string>& rules) {
  Answer answer;
  if (!Ask("\"type\":\"idleFaults\"", answer)) return false;
  rules = answer.idleRules;
  return true;
}

void Broker::SendStat(const std::string& json) {
  int file = memfd_create("wasm-roce state", MFD_CLOEXEC);
  const bool isWritten = file >= 0 && write(file, json.data(), json.size()) == static_cast<ssize_t>(json.size());
  Send("{\"type\":\"stat\"}", isWritten ? std::vector<int>{file} : std::vector<int>{});
  CloseFd(file);
}

void Broker::Leave() {
  Disconnect();
  CloseFd(wishes_.gate);
  search_.End();
  CloseFd(lease_);
  CloseFd(vault_);
  slot_ = 0;
}

int64_t Broker::Deadline() const {
  if (slot_ == 0) return 0;
  return connection_ < 0 ? retryAt_ : greetsUntil_;
}

bool Broker::Keep(int64_t now) {
  if (slot_ == 0) return true;
  if (connection_ >= 0) Receive();
  if (greetsUntil_ != 0 && now > greetsUntil_) Disconnect();
  if (connection_ < 0 && !isLost_ && now >= retryAt_) {
    retryAt_ = now + kRetry;
    Connect(now);
  }
  if (!isLost_) return true;
  Leave();
  return false;
}

/// Whether the user of the broker may have this process's packets: root trusts root alone.
bool Broker::IsTrusted() const {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(connection_, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == 0 || geteuid() != 0;
}

void Broker::Connect(int64_t now) {
  failure_.clear();
  const int found = search_.Try(now);
  isAbsent_ = found == -ENOENT;
  connection_ = std::max(found, -1);
  if (found < 0) {
    if (!isAbsent_ && found != -EAGAIN) failure_ = std::string("the broker cannot be reached: ") + strerror(-found);
  } else if (IsTrusted()) {
    Greet(now);
  } else {
    Disconnect();
    failure_ = "the broker belongs to a user whom root does not trust";
    isRefused_ = true;
  }
}

void Broker::Greet(int64_t now) {
  greetsUntil_ = now + kPatience;
  const std::string head = "{\"id\":0,\"version\":" + std::string(kVersion) + ",";
  if (slot_ == 0) return Send(head + "\"type\":\"join\",\"onlyLocal\":false" + about_, {});
  Send(head + "\"type\":\"rejoin\",\"services\":[],\"isAgent\":false,\"slot\":" + std::to_string(slot_) +
           ",\"secret\":" + Quoted(secret_) + about_,
       {vault_});
}

void Broker::OnGreeted(Answer& answer) {
  greetsUntil_ = 0;
  if (!answer.error.empty()) {
    failure_ = answer.message;
    // without a slot there is nothing to keep; with one, another broker may admit this user
    isRefused_ = slot_ == 0;
    isLost_ = slot_ != 0 && answer.error == "ENOENT";
    return Disconnect();
  }
  const bool isJoin = slot_ == 0;
  const size_t expected = isJoin ? 2 : 1;
  if (answer.fds.size() != expected || answer.slot - 1 > 254 || answer.secret.empty()) return Disconnect();
  if (isJoin) lease_ = answer.fds[0];
  CloseFd(vault_);
  vault_ = answer.fds[expected - 1];
  answer.fds.clear();
  slot_ = answer.slot;
  secret_ = answer.secret;
  // its answer comes without being awaited
  if (!isJoin && !faults_.empty()) Send("{\"id\":" + std::to_string(kUnawaitedId) + "," + faults_ + "}", {});
  if (!asked_.empty()) Send(asked_, {});
}

/// Sends a request, and waits for the answer. @returns false if there is none, or a refusal: `failure_` says why
bool Broker::Ask(const std::string& request, Answer& answer) {
  asked_ = "{\"id\":" + std::to_string(kRequestId) + "," + request + "}";
  hasAnswer_ = false;
  failure_.clear();
  if (connection_ >= 0) Send(asked_, {});
  const int64_t until = MonotonicTime() + kPatience;
  for (int64_t now = MonotonicTime(); !hasAnswer_ && slot_ != 0 && now < until; now = MonotonicTime()) {
    pollfd wait{connection_, POLLIN, 0};
    poll(&wait, 1, static_cast<int>(kRetry * 1000 / kSecond));
    Keep(MonotonicTime());
  }
  asked_.clear();
  if (hasAnswer_ && answer_.error.empty()) {
    std::swap(answer, answer_);
    return true;
  }
  if (hasAnswer_) failure_ = answer_.message;
  if (failure_.empty()) failure_ = "it does not answer within 10 s";
  return false;
}

/// A message that cannot be sent is lost with the connection, whose end comes then.
void Broker::Send(const std::string& message, const std::vector<int>& fds) {
  SendUnix(connection_, message.data(), message.size(), fds);
}

void Broker::Receive() {
  while (connection_ >= 0) {
    UnixMessage message;
    const int refused = ReceiveUnix(connection_, false, message);
    if (refused == -EAGAIN) return;
    if (refused != 0 || message.IsEnd()) return Disconnect();
    OnMessage(message);
  }
}

void Broker::OnMessage(const UnixMessage& message) {
  Answer answer;
  answer.fds = message.fds;
  rapidjson::Document document;
  document.Parse(reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size());
  const bool isObject = !document.HasParseError() && document.IsObject();
  if (isObject) {
    answer.slot = NumberIn(document, "slot");
    answer.secret = StringIn(document, "secret");
    answer.error = StringIn(document, "error");
    answer.message = StringIn(document, "message");
    answer.idleRules = StringsIn(document, "idle");
  }
  const uint32_t id = isObject ? NumberIn(document, "id") : UINT32_MAX;
  if (id == kGreetingId && greetsUntil_ != 0) {
    OnGreeted(answer);
  } else if (id == kRequestId && !asked_.empty() && !hasAnswer_) {
    std::swap(answer, answer_);
    hasAnswer_ = true;
  } else if (isObject && id == UINT32_MAX) {
    AddWish(document, answer.fds, wishes_);
  }
  CloseAll(answer.fds);
}

void Broker::Disconnect() {
  CloseFd(connection_);
  greetsUntil_ = 0;
  retryAt_ = MonotonicTime();
}

// The object PacketSocket.
#include <fcntl.h>
#include <cerrno>

#include "core/fd.h"
#include "core/packetsocket.h"
#include "arguments.h"
#include "exports.h"
#include "framesocketobject.h"
#include "udpsocketsobject.h"

namespace {

/// Makes a ring in a thread of libuv's pool. The socket may be closed meanwhile.
class RingMaker : public Napi::AsyncWorker {
 public:
  RingMaker(Napi::Env env, int fd, uint32_t bytes, uint32_t frameBytes)
      : AsyncWorker(env, "wasm_roce.makeRing"),
        deferred_(Napi::Promise::Deferred::New(env)),
        fd_(fcntl(fd, F_DUPFD_CLOEXEC, 0)),
        bytes_(bytes),
        frameBytes_(frameBytes) {}
  ~RingMaker() override { CloseFd(fd_); }
  Napi::Value Promise() const { return deferred_.Promise(); }

 protected:
  void Execute() override { result_ = PacketRing::Make(fd_, bytes_, frameBytes_); }
  void OnOK() override { deferred_.Resolve(Napi::Number::New(Env(), result_)); }

 private:
  Napi::Promise::Deferred deferred_;
  int fd_, result_ = 0;
  uint32_t bytes_, frameBytes_;
};

PacketGroup GroupOf(const Napi::CallbackInfo& info) {
  const auto ip = BytesAt(info, 0);
  PacketGroup group;
  group.isIpv6 = ip.ByteLength() == sizeof group.address;
  memcpy(group.address, ip.Data(), ip.ByteLength());
  memcpy(group.mac, BytesAt(info, 1).Data(), sizeof group.mac);
  return group;
}

class PacketSocketObject : public Napi::ObjectWrap<PacketSocketObject> {
 public:
  using Self = PacketSocketObject;
  using Info = Napi::CallbackInfo;
  static Napi::Function Define(Napi::Env env) {
    return DefineClass(env, "PacketSocket",
                       {InstanceMethod<&Self::Open>("open"), InstanceMethod<&Self::Steer>("steer"),
                        InstanceMethod<&Self::Share>("share"), InstanceMethod<&Self::BindPort>("bindPort"),
                        InstanceMethod<&Self::UnbindPort>("unbindPort"),
                        InstanceMethod<&Self::JoinGroup>("joinGroup"), InstanceMethod<&Self::LeaveGroup>("leaveGroup"),
                        InstanceMethod<&Self::Attach>("attach"), InstanceMethod<&Self::MakeRing>("makeRing"),
                        InstanceMethod<&Self::MapRing>("mapRing"), InstanceMethod<&Self::Transfer>("transfer"),
                        InstanceMethod<&Self::Send>("send"), InstanceMethod<&Self::Receive>("receive"),
                        InstanceMethod<&Self::Counters>("counters"), InstanceMethod<&Self::Fd>("fd"),
                        InstanceMethod<&Self::Close>("close")});
  }
  explicit PacketSocketObject(const Info& info) : ObjectWrap(info) {}

 private:
  // open(ifindex, mac, bufferBytes): 0 or -errno
  Napi::Value Open(const Info& info) {
    uint8_t mac[ETH_ALEN];
    memcpy(mac, BytesAt(info, 1).Data(), sizeof mac);
    return Result(info, socket_.Open(IntAt(info, 0), mac, IntAt(info, 2)));
  }

  // steer(mask, value): 0 or -errno
  Napi::Value Steer(const Info& info) {
    return Result(info, socket_.Steer(info[0].As<Napi::Number>(), info[1].As<Napi::Number>()));
  }

  // share(UdpSockets, slot; 0 = none): 0 or -errno
  Napi::Value Share(const Info& info) {
    localObject_ = Napi::Persistent(info[0].As<Napi::Object>());
    return Result(info, socket_.Share(UdpSocketsObject::Unwrap(localObject_.Value())->Sockets(),
                                      info[1].As<Napi::Number>()));
  }

  // bindPort(address of 4 or 16 bytes, port, scope id, whether others may bind it): 0 or -errno
  Napi::Value BindPort(const Info& info) { return Result(info, socket_.BindPort(AddressOf(info), BoolAt(info, 3))); }

  // unbindPort(address of 4 or 16 bytes)
  void UnbindPort(const Info& info) {
    const auto ip = BytesAt(info, 0);
    socket_.UnbindPort(ip.Data(), ip.ByteLength());
  }

  // joinGroup(address of 4 or 16 bytes, its MAC, ifindex): 0 or -errno
  Napi::Value JoinGroup(const Info& info) { return Result(info, socket_.JoinGroup(GroupOf(info), IntAt(info, 2))); }

  // leaveGroup(address of 4 or 16 bytes, its MAC, ifindex)
  void LeaveGroup(const Info& info) { socket_.LeaveGroup(GroupOf(info), IntAt(info, 2)); }

  void Attach(const Info& info) { memory_.Attach(info, socket_); }

  // makeRing(bytes, bytes of a frame): promise of 0 or -errno
  Napi::Value MakeRing(const Info& info) {
    auto* maker = new RingMaker(info.Env(), socket_.Fd(), info[0].As<Napi::Number>(), info[1].As<Napi::Number>());
    maker->Queue();
    return maker->Promise();
  }

  // mapRing(offset in the card's memory, bytes, bytes of a frame): 0 or -errno
  Napi::Value MapRing(const Info& info) {
    const auto at = static_cast<uint64_t>(info[0].As<Napi::Number>().Int64Value());
    return Result(info, socket_.MapRing(at, info[1].As<Napi::Number>(), info[2].As<Napi::Number>()));
  }

  // transfer(): the id for AdoptedSocket
  Napi::Value Transfer(const Info& info) { return Napi::Number::New(info.Env(), socket_.Transfer()); }

  // send(): descriptors consumed, or ~ of that if the kernel refused a GSO burst
  Napi::Value Send(const Info& info) { return Result(info, socket_.Send()); }

  // receive(): descriptors produced in the receive ring, one batch at most
  Napi::Value Receive(const Info& info) { return Napi::Number::New(info.Env(), socket_.Receive()); }

  Napi::Value Counters(const Info& info) { return CountersOf(info.Env(), socket_.Counters()); }

  Napi::Value Fd(const Info& info) { return Result(info, socket_.Fd()); }

  void Close(const Info&) { memory_.Close(socket_); }

  // destroyed before memory and local sockets are given back
  AttachedMemory memory_;
  Napi::ObjectReference localObject_;
  PacketSocket socket_;
};

}  // namespace

void DefinePacketSocket(Napi::Object exports) {
  exports.Set("PacketSocket", PacketSocketObject::Define(exports.Env()));
}

// The object UdpSockets.
#pragma once
#include "core/udpsockets.h"
#include "framesocketobject.h"

class UdpSocketsObject : public Napi::ObjectWrap<UdpSocketsObject> {
 public:
  static Napi::Function Define(Napi::Env env);
  explicit UdpSocketsObject(const Napi::CallbackInfo& info) : ObjectWrap(info) {}
  UdpSockets& Sockets() { return sockets_; }

 private:
  using Info = Napi::CallbackInfo;
  Napi::Value Add(const Info& info);
  Napi::Value Adopt(const Info& info);
  Napi::Value AddSender(const Info& info);
  Napi::Value JoinGroup(const Info& info);
  void LeaveGroup(const Info& info);
  void Remove(const Info& info);
  Napi::Value SupportsGso(const Info& info);
  void Attach(const Info& info) { memory_.Attach(info, sockets_); }
  Napi::Value Transfer(const Info& info);
  Napi::Value Send(const Info& info);
  Napi::Value Receive(const Info& info);
  Napi::Value Counters(const Info& info) { return CountersOf(info.Env(), sockets_.Counters()); }
  Napi::Value Fds(const Info& info);
  Napi::Value FdOf(const Info& info);
  void Close(const Info&) { memory_.Close(sockets_); }

  // destroyed before the memory is given back
  AttachedMemory memory_;
  UdpSockets sockets_;
};

#include "udpsocketsobject.h"

#include "arguments.h"
#include "exports.h"

Napi::Function UdpSocketsObject::Define(Napi::Env env) {
  using Self = UdpSocketsObject;
  return DefineClass(env, "UdpSockets",
                     {InstanceMethod<&Self::Add>("add"), InstanceMethod<&Self::Adopt>("adopt"),
                      InstanceMethod<&Self::AddSender>("addSender"), InstanceMethod<&Self::JoinGroup>("joinGroup"),
                      InstanceMethod<&Self::LeaveGroup>("leaveGroup"), InstanceMethod<&Self::Remove>("remove"),
                      InstanceMethod<&Self::SupportsGso>("supportsGso"), InstanceMethod<&Self::Attach>("attach"),
                      InstanceMethod<&Self::Transfer>("transfer"), InstanceMethod<&Self::Send>("send"),
                      InstanceMethod<&Self::Receive>("receive"), InstanceMethod<&Self::Counters>("counters"),
                      InstanceMethod<&Self::Fds>("fds"), InstanceMethod<&Self::FdOf>("fdOf"),
                      InstanceMethod<&Self::Close>("close")});
}

// add(address of 4 or 16 bytes, port, scope id, bufferBytes, ifindex): 0 or -errno
Napi::Value UdpSocketsObject::Add(const Info& info) {
  return Result(info, sockets_.Add(AddressOf(info), IntAt(info, 3), IntAt(info, 4)));
}

// adopt(fd, address of 4 or 16 bytes, port, scope id, bufferBytes, ifindex): 0 or -errno
Napi::Value UdpSocketsObject::Adopt(const Info& info) {
  return Result(info, sockets_.Adopt(IntAt(info, 0), AddressOf(info, 1), IntAt(info, 4), IntAt(info, 5)));
}

// addSender(address of 4 or 16 bytes, 0, scope id, bufferBytes, hasChecksum): the UDP port, or -errno
Napi::Value UdpSocketsObject::AddSender(const Info& info) {
  return Result(info, sockets_.AddSender(AddressOf(info), IntAt(info, 3), BoolAt(info, 4)));
}

// joinGroup(group of 4 or 16 bytes, port, scope id, bufferBytes, ifindex): the file descriptor, or -errno
Napi::Value UdpSocketsObject::JoinGroup(const Info& info) {
  return Result(info, sockets_.JoinGroup(AddressOf(info), IntAt(info, 3), IntAt(info, 4)));
}

// leaveGroup(group of 4 or 16 bytes)
void UdpSocketsObject::LeaveGroup(const Info& info) {
  const auto ip = BytesAt(info, 0);
  sockets_.LeaveGroup(ip.Data(), ip.ByteLength());
}

// remove(address of 4 or 16 bytes)
void UdpSocketsObject::Remove(const Info& info) {
  const auto ip = BytesAt(info, 0);
  sockets_.Remove(ip.Data(), ip.ByteLength());
}

// supportsGso(): whether the kernel has UDP_SEGMENT and UDP_GRO
Napi::Value UdpSocketsObject::SupportsGso(const Info& info) {
  return Napi::Boolean::New(info.Env(), sockets_.SupportsGso());
}

// transfer(): the id for AdoptedSocket
Napi::Value UdpSocketsObject::Transfer(const Info& info) { return Napi::Number::New(info.Env(), sockets_.Transfer()); }

// send(): descriptors consumed, or ~ of that if the kernel refused a GSO burst
Napi::Value UdpSocketsObject::Send(const Info& info) { return Result(info, sockets_.Send()); }

// receive(): descriptors produced in the receive ring, one batch of each socket at most
Napi::Value UdpSocketsObject::Receive(const Info& info) { return Napi::Number::New(info.Env(), sockets_.Receive()); }

// fds(): the file descriptors of the sockets that receive
Napi::Value UdpSocketsObject::Fds(const Info& info) {
  auto fds = Napi::Array::New(info.Env());
  for (int fd : sockets_.Fds()) fds.Set(fds.Length(), fd);
  return fds;
}

// fdOf(address of 4 or 16 bytes): the file descriptor of the socket with this address, or -1
Napi::Value UdpSocketsObject::FdOf(const Info& info) {
  const auto ip = BytesAt(info, 0);
  return Result(info, sockets_.FdOf(ip.Data(), ip.ByteLength()));
}

void DefineUdpSockets(Napi::Object exports) { exports.Set("UdpSockets", UdpSocketsObject::Define(exports.Env())); }

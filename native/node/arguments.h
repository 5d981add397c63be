// Arguments and results of the exports.
#pragma once
#include <napi.h>
#include <cstring>
#include <string>

#include "core/address.h"
#include "core/frames.h"

inline int IntAt(const Napi::CallbackInfo& info, size_t i) { return info[i].As<Napi::Number>(); }
inline bool BoolAt(const Napi::CallbackInfo& info, size_t i) { return info[i].As<Napi::Boolean>(); }
inline std::string TextAt(const Napi::CallbackInfo& info, size_t i) { return info[i].As<Napi::String>(); }
inline Napi::Uint8Array BytesAt(const Napi::CallbackInfo& info, size_t i) { return info[i].As<Napi::Uint8Array>(); }

/// Returns a sockaddr_in6, or a sockaddr_in in its place. Arguments from `first` on: IP address (4 or 16 bytes), port,
/// scope id.
inline sockaddr_in6 AddressOf(const Napi::CallbackInfo& info, size_t first = 0) {
  const auto ip = BytesAt(info, first);
  const auto port = static_cast<uint16_t>(info[first + 1].As<Napi::Number>().Uint32Value());
  return SocketAddress(ip.Data(), ip.ByteLength(), port, info[first + 2].As<Napi::Number>());
}

/// Returns the layout in a Uint32Array of ten numbers: see `attach` of NativeFrameSocket in src/native.ts.
inline FrameLayout LayoutOf(Napi::Uint32Array numbers) {
  FrameLayout layout;
  memcpy(&layout, numbers.Data(), sizeof layout);
  return layout;
}
inline FrameLayout LayoutAt(const Napi::CallbackInfo& info, size_t i) { return LayoutOf(info[i].As<Napi::Uint32Array>()); }
static_assert(sizeof(FrameLayout) == 10 * sizeof(uint32_t));

inline Napi::Value Result(const Napi::CallbackInfo& info, int result) {
  return Napi::Number::New(info.Env(), result);
}

// Memory of ArrayBuffers, kept for native code whatever the program does with them.
#pragma once
#include <napi.h>

/// Returns another ArrayBuffer over the memory of an ArrayBuffer; empty if this runtime cannot make one.
///
/// A reference to an ArrayBuffer does not keep its memory: a program may transfer it to another ArrayBuffer or thread
/// (ArrayBuffer.prototype.transfer, postMessage), and a WebAssembly memory leaves its ArrayBuffer when it grows. Only
/// the one that is returned here, which no program sees, keeps it. Node-API cannot make it, V8 can, which Node exports.
/// V8 ends the process for a resizable ArrayBuffer.
Napi::Value SecondOwner(Napi::ArrayBuffer buffer);

// File descriptors that JavaScript has as plain numbers. They belong to the environment that they were handed to, which may be a
// worker thread's and end without having closed them.
#pragma once
#include <napi.h>

/// Once for each environment, before anything else here.
void OwnFds(Napi::Env env);
/// What JavaScript gets of a file descriptor, which from then on ends with the environment at the latest. Takes a -errno too, and
/// passes that on.
Napi::Value HandOut(Napi::Env env, int fd);

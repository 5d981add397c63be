// The file descriptors that JavaScript handles as plain numbers. Each belongs to one environment, which closes it when
// it ends: a worker thread may be terminated before it closes what it opened.
#pragma once
#include <napi.h>

/// Adds a file descriptor to the environment's list, which DefineFds creates.
/// @returns the number for JavaScript; a -errno is returned as it is
Napi::Value OwnFd(Napi::Env env, int fd);

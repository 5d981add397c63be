// Last frames: whole frames that are sent when the process or the Node environment ends, unless they are dropped
// before. They leave by exit(3), by the end of a worker thread, and by a signal that ends the process.
#pragma once
#include <napi.h>

/// Sends the environment's last frames when it ends. Call it once for each environment.
void InitLastFrames(Napi::Env env);
/// Drops the last frames that a socket would send. Call it before the socket is closed.
void DropLastFramesOf(int fd);

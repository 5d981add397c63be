// The few functions of libuv that the addon uses. Node exports them, and their ABI is fixed for libuv 1.x, but the npm
// headers leave uv.h out. With these declarations, building the addon does not need Node's own headers.
#pragma once
#include <cstddef>

extern "C" {
struct uv_loop_s;
struct uv_handle_s;
struct uv_poll_s;
using uv_poll_cb = void (*)(uv_poll_s*, int status, int events);
using uv_close_cb = void (*)(uv_handle_s*);

size_t uv_handle_size(int type);
int uv_poll_init(uv_loop_s*, uv_poll_s*, int fd);
int uv_poll_start(uv_poll_s*, int events, uv_poll_cb);
int uv_poll_stop(uv_poll_s*);
void uv_close(uv_handle_s*, uv_close_cb);
void uv_ref(uv_handle_s*);
void uv_unref(uv_handle_s*);
void uv_handle_set_data(uv_handle_s*, void*);
void* uv_handle_get_data(const uv_handle_s*);
}

constexpr int kUvPoll = 8;      // UV_POLL of uv_handle_type
constexpr int kUvReadable = 1;  // UV_READABLE

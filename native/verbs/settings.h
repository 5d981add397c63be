// The settings of a program, from its environment.
#pragma once
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

/// Returns a variable of the environment that is not empty; else null.
inline const char* Setting(const char* name) {
  const char* value = getenv(name);
  return value != nullptr && *value != 0 ? value : nullptr;
}

/// Says on stderr why there is no adapter. @returns false
[[gnu::format(printf, 1, 2)]] inline bool Refuse(const char* format, ...) {
  fputs("wasm-roce: there is no RDMA device: ", stderr);
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  return false;
}

/* Loads the addon with musl. NAPI is a list of X(name), one for each function that Node would provide. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define X(name) void name(void) { abort(); }
NAPI
#undef X

int main(int argc, char** argv) {
  void* addon = argc > 1 ? dlopen(argv[1], RTLD_NOW) : 0;
  if (addon == 0) return fprintf(stderr, "%s\n", dlerror()), 1;
  puts(dlsym(addon, "napi_register_module_v1") ? "loaded" : "no registration");
  return 0;
}

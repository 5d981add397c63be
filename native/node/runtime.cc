// Functions that the C++ runtime, which is linked in, takes from glibc beyond version 2.28, or where musl may run.
#include <sys/auxv.h>

extern "C" {

// glibc 2.32: reference counts need no atomic instructions while this is true.
__attribute__((visibility("hidden"))) extern char __libc_single_threaded;
char __libc_single_threaded = 0;

// glibc 2.35: finds the tables for unwinding. Nothing catches exceptions here, so one must end the process at once.
__attribute__((visibility("hidden"))) int _dl_find_object(void*, void*) { return -1; }

#if defined(__aarch64__)
// musl has it by its public name only.
__attribute__((visibility("hidden"))) unsigned long __getauxval(unsigned long type) { return getauxval(type); }
#endif
}

#include "crc.h"

#if !defined(__x86_64__) && !defined(__aarch64__)
std::vector<CrcMethod> MethodsOfProcessor() { return {}; }
#endif

const std::vector<CrcMethod>& CrcMethods() {
  static const std::vector<CrcMethod> methods = MethodsOfProcessor();
  return methods;
}

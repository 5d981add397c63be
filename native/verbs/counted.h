// Objects that a program has made and not destroyed, by kind. The report at its end names them.
#pragma once
#include <cstddef>

enum class Kind : size_t { kContext, kPd, kTd, kMr, kMw, kChannel, kCq, kSrq, kAh, kQp, kCount };

void CountMade(Kind kind, const void* object);
void CountDestroyed(Kind kind, const void* object);

/// A base of the objects of a kind.
template <Kind kind>
struct Counted {
  Counted() { CountMade(kind, this); }
  ~Counted() { CountDestroyed(kind, this); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
};

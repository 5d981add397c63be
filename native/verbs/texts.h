// Texts of the card's codes.
#pragma once
#include <cstddef>
#include <cstdint>

#include "card_texts.h"

/// @returns "unknown" if there is none
template <size_t count>
const char* TextOf(const CodeText (&texts)[count], uint32_t code) {
  for (const CodeText& each : texts)
    if (each.code == code) return each.text;
  return "unknown";
}

// A completion of the card as verbs has it.
#pragma once
#include "adapter.h"

/// Reads the completion at an offset of the card's memory. The caller holds the lock.
void ReadCompletion(Adapter& adapter, uint32_t cqe, ibv_wc& wc);

// The state of the adapter for controllers of its program (wasm-roce stat): a DeviceStat of src/verbs/diagnose/stat.ts,
// as JSON.
#pragma once
#include <string>

#include "core/frames.h"

class Adapter;

/// @param slot of the broker @param link counters of the sockets. The caller holds the adapter's lock
std::string DeviceStat(Adapter& adapter, uint32_t slot, const FrameCounters& link);

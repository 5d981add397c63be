// The report of a program when it ends: WASM_ROCE_REPORT is its file, or `-` for stderr. With WASM_ROCE_STACKS it has
// the calls that made the objects, too.
#pragma once
#include <cstdint>

class Adapter;

/// Has the report written when the process ends, if it is wanted: not when it is killed or calls `_exit`.
void ReportAtExit(Adapter& adapter);

/// Counts a completion that the program has polled. The caller holds the adapter's lock.
void CountCompletion(uint32_t status);

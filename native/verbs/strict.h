// Misuse that adapters punish, some of it only now and then, and that this adapter forgives or only refuses. With
// WASM_ROCE_STRICT it ends the program (SIGABRT), after a sentence on stderr.
//
// The caller holds the adapter's lock.
#pragma once
#include <cstdint>

#include "objects.h"

/// Whether the program is to end by misuse.
bool IsStrict();

/// Checks a request that was posted, and remembers its data: they must stay until it is complete.
/// @param refused the errno of the call, or 0
void CheckSend(Qp& qp, const ibv_send_wr& request, int refused);
/// @param maxSge pieces that a receive of the queue may have
void CheckReceive(const ibv_recv_wr& request, uint32_t maxSge, int refused);
/// Checks a completion that the program polls. @param cqe the completion, in the card's memory
void CheckCompletion(Adapter& adapter, uint32_t cqe, const ibv_wc& wc);
/// Checks an asynchronous event.
void CheckEvent(const ibv_async_event& event);

// Explanations of failures, for a person: WASM_ROCE_EXPLAIN.
#pragma once
#include <infiniband/verbs.h>
#include <cstdint>
#include <string>

class Adapter;
struct Qp;

/// Returns a request as explanations name it: operation, number, queue pair and peer.
std::string RequestText(const Qp& qp, const ibv_send_wr& request);
/// Returns why a request has failed, in a sentence. @param cqe the completion, in the card's memory. The caller holds
/// the lock
std::string FailureText(Adapter& adapter, uint32_t cqe);
/// Returns the error that an asynchronous event reports, in a sentence. Empty: it reports none.
std::string EventText(const ibv_async_event& event);

/// Says on stderr in a sentence why a request has failed, if WASM_ROCE_EXPLAIN is set. Requests that were flushed after
/// another failure of their queue pair are not explained. The caller holds the lock.
/// @param cqe the completion, in the card's memory
void ExplainFailure(Adapter& adapter, uint32_t cqe);

/// Says on stderr in a sentence which error an asynchronous event reports, as many programs read none. Events that
/// report no error are not explained. The requests that the error flushes are not explained after it. The caller holds
/// the lock.
void ExplainEvent(const ibv_async_event& event);

// The calls that describe send requests one after the other (ibv_wr_start, ibv_wr_post(3)).
#pragma once
#include "objects.h"

/// Returns the operations (IBV_QP_EX_WITH_*) that a type of queue pair has.
uint64_t SendOperationsOf(ibv_qp_type type);
/// Gives a queue pair the calls for these operations; for none, it has no such calls.
void SetSendOperations(Qp& qp, uint64_t operations);

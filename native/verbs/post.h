// Work requests, from verbs to the card.
#pragma once
#include "objects.h"

/// Posts a send request. The caller holds the lock. @returns 0 or an errno
int PostSend(Adapter& adapter, Qp& qp, const ibv_send_wr& request);

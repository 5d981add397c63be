// Addresses of peers.
#pragma once
#include "adapter.h"

/// Checks an address: RoCE's are global, by a GID of the table, which is of the same version of IP.
/// @returns 0 or an errno
int CheckAddress(const Adapter& adapter, const ibv_ah_attr& attr);
/// Writes an address that CheckAddress accepts to the card's scratch memory. The caller holds the lock.
void WriteAddress(Adapter& adapter, const ibv_ah_attr& attr);

// Addresses of peers.
#pragma once
#include "adapter.h"
#include "objects.h"

/// Checks an address: RoCE's are global, by a GID of the table, which is of the same version of IP.
/// @returns 0 or an errno
int CheckAddress(const Adapter& adapter, const ibv_ah_attr& attr);
/// Writes an address that CheckAddress accepts to the card's scratch memory. The caller holds the lock.
/// @param remoteQpn 0 = not known
void WriteAddress(Adapter& adapter, const ibv_ah_attr& attr, uint32_t remoteQpn);
/// Returns the card's handle of an address for datagrams to a queue pair. The caller holds the lock.
uint32_t HandleTo(Adapter& adapter, Ah& ah, uint32_t remoteQpn);

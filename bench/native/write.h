/* A requester of RC WRITEs as adapters send them: one frame for each packet, no UDP checksum, identifications that
   count, MigReq set. */
#pragma once
#include "link.h"

/* Returns the content of frames that carry the packets of messages to the queue pairs of `o->targets`, by turns,
   each from PSN 0 on. The targets must stay where they are. */
const struct content *write_packets(const struct options *o);
/* Sends messages by `link`, and prints the acknowledged packets of the window, all packets, and the CPU time of all.
   Sends a SEND with immediate before the first message and after the last one, as the active end of our own does. */
void write_messages(const struct link *link, const struct options *o);

// One netlink request and its whole reply, as bytes. Any thread may call the functions.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

/// Sends a request, and appends the messages of the reply to `reply`. Blocks for a second at most.
/// @param protocol NETLINK_ROUTE and so on @returns 0 or -errno
int NetlinkExchange(int protocol, const uint8_t* request, size_t bytes, std::vector<uint8_t>& reply);

/// Opens a socket with the notifications of groups of NETLINK_ROUTE (RTMGRP_*). @returns its file descriptor or -errno
int NetlinkListen(uint32_t groups);

/// Reads the oldest notification of such a socket.
/// @returns its bytes, or -errno: EAGAIN for none, ENOBUFS if some were lost
int NetlinkReceive(int fd, uint8_t* into, size_t room);

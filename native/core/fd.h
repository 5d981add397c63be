// The file descriptors of all sockets: their buffers and their end.
#pragma once

/// IPV6_FREEBIND, which libc's headers lack.
constexpr int kIpv6FreeBind = 78;

/// Sets the size of a socket's receive buffer in bytes, beyond the system's limit if the process has CAP_NET_ADMIN.
void SetReceiveBuffer(int fd, int bytes);
void SetSendBuffer(int fd, int bytes);
/// Returns the size of the receive buffer that the kernel granted, in bytes.
int ReceiveBuffer(int fd);
/// Drops what a socket has received.
void DropReceived(int fd);
/// Closes the file descriptor, if it is not -1, and sets it to -1. Drops the last frames that it would send.
void CloseFd(int& fd);

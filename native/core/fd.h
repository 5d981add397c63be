// The file descriptors of all sockets: their buffers and their end.
#pragma once

/// IPV6_FREEBIND, which libc's headers lack.
constexpr int kIpv6FreeBind = 78;

/// Opens a socket, which an exec closes, by the kernel's own call: librspreload.so, and other libraries that stand in
/// front of libc's `socket`, would give a program's RDMA sockets to the adapter that carries them.
/// @return the file descriptor, or -1, which sets errno
int KernelSocket(int domain, int type, int protocol = 0);
/// Sets the size of a socket's receive buffer in bytes, beyond the system's limit if the process has CAP_NET_ADMIN.
void SetReceiveBuffer(int fd, int bytes);
void SetSendBuffer(int fd, int bytes);
/// Returns the size of the receive buffer that the kernel granted, in bytes.
int ReceiveBuffer(int fd);
/// Drops what a socket has received.
void DropReceived(int fd);
/// Closes the file descriptor, if it is not -1, and sets it to -1. Drops the last frames that it would send.
void CloseFd(int& fd);

// Last frames: whole frames that are sent when the process or their owner ends, unless they are dropped before. They
// leave by exit(3), by EndLastFramesOf, and by a signal that ends the process. Any thread may call the functions.
#pragma once
#include <cstddef>
#include <cstdint>

/// Keeps a frame. @param owner see EndLastFramesOf @param fd of the packet socket or UDP socket that sends it
/// @param ifindex of its interface @returns a number for DropLastFrame, or -errno
int64_t KeepLastFrame(const void* owner, int fd, const uint8_t* frame, size_t bytes, int ifindex);

/// Drops a frame. @param id that KeepLastFrame has returned
void DropLastFrame(uint64_t id);

/// Drops the last frames that a socket would send. Call it before the socket is closed.
void DropLastFramesOf(int fd);

/// Sends the frames of an owner, and forgets them.
void EndLastFramesOf(const void* owner);

/// Handles the signals that would end the process now, so that the frames leave before.
void SendLastFramesAtSignals();

/// Opens a packet socket that only sends. @returns its file descriptor or -errno
int OpenSendingPacketSocket();

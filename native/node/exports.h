// The addon's exports. Each function adds those of the file with its subject.
#pragma once
#include <napi.h>

void DefineCrc(Napi::Object exports);
void DefinePacketSocket(Napi::Object exports);
void DefineUdpSockets(Napi::Object exports);
void DefineAdoptedSocket(Napi::Object exports);
void DefineCardThread(Napi::Object exports);
void DefineFutexes(Napi::Object exports);
void DefineErrorSocket(Napi::Object exports);
void DefineXskSocket(Napi::Object exports);
void DefineRingIcrc(Napi::Object exports);
void DefineJoinGroup(Napi::Object exports);
void DefinePoller(Napi::Object exports);
void DefineFds(Napi::Object exports);
void DefineEventfds(Napi::Object exports);
void DefineNameLocks(Napi::Object exports);
void DefineNetlink(Napi::Object exports);
void DefineLibbpf(Napi::Object exports);
void DefineNotify(Napi::Object exports);
void DefineRegions(Napi::Object exports);
void DefineReleasePages(Napi::Object exports);
void DefineTaps(Napi::Object exports);
void DefineUnixSockets(Napi::Object exports);
void DefinePortGroups(Napi::Object exports);
void DefineLastFrames(Napi::Object exports);

// The device by its names and codes: the functions and the files that programs ask say the same.
#pragma once
#include <cstdint>

constexpr const char* kDevice = "wroce0";
/// In /dev/infiniband, which has a file for each device.
constexpr const char* kVerbsFile = "uverbs0";
constexpr uint8_t kPortNumber = 1;
/// Width and speed of the port, as `struct ibv_port_attr` has them: 1X, and EDR of 25 Gbit/s.
constexpr uint8_t kWidth1x = 1, kSpeedEdr = 32;
/// States of the physical layer.
constexpr uint8_t kLinkUp = 5, kDisabled = 3;

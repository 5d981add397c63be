// The device by its names and codes: the functions and the files that programs ask say the same.
#pragma once
#include <cstdint>

#include "abi.h"

constexpr const char* kDevice = "wroce0";
/// In /dev/infiniband, which has a file for each device.
constexpr const char* kVerbsFile = "uverbs0";
constexpr uint8_t kPortNumber = 1;
/// Width and speed of the port, as `struct ibv_port_attr` has them: 1X, and EDR of 25 Gbit/s.
constexpr uint8_t kWidth1x = 1, kSpeedEdr = 32;
/// Both as sysfs has them.
constexpr const char* kRate = "25 Gb/sec (1X EDR)";
constexpr uint32_t kPortCapabilities = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
/// States of the physical layer.
constexpr uint8_t kLinkUp = 5, kDisabled = 3;

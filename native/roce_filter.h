// Classic BPF: what a raw socket lets through.
#pragma once
#include <linux/filter.h>

/// UDP to port 4791 over IPv4 or IPv6, unfragmented, no IPv6 extension headers. A single 802.1Q tag needs no case of
/// its own: the kernel has moved it from the data to the packet's metadata before a packet socket sees it.
static const sock_filter kRoceFilter[] = {
    /*  0 */ BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12),            // EtherType
    /*  1 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x86dd, 8, 0), // IPv6: to 10
    /*  2 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x0800, 0, 12),
    /*  3 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 23),            // IPv4 protocol
    /*  4 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 17, 0, 10),
    /*  5 */ BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 20),            // more fragments, or an offset
    /*  6 */ BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x3fff, 8, 0),
    /*  7 */ BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 14),           // X = length of the IPv4 header
    /*  8 */ BPF_STMT(BPF_LD | BPF_H | BPF_IND, 16),
    /*  9 */ BPF_STMT(BPF_JMP | BPF_JA, 3),                     // to 13
    /* 10 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 20),            // IPv6 next header
    /* 11 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 17, 0, 3),
    /* 12 */ BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 56),
    /* 13 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 4791, 0, 1),   // UDP destination port
    /* 14 */ BPF_STMT(BPF_RET | BPF_K, 0x40000),
    /* 15 */ BPF_STMT(BPF_RET | BPF_K, 0),
};

/// Nothing at all: a socket that only holds a port.
static const sock_filter kNothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};

template <size_t N>
static int AttachFilter(int fd, const sock_filter (&program)[N]) {
  sock_fprog prog{N, const_cast<sock_filter*>(program)};
  return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof prog);
}

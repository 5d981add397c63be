// Classic BPF programs that say which packets a socket receives.
#pragma once
#include <linux/filter.h>
#include <linux/if_packet.h>

/// UDP to port 4791 over IPv4 or IPv6, unfragmented, without IPv6 extension headers, to the interface's own MAC address
/// or, if the destination is a multicast group, to that group's MAC address. In promiscuous mode an interface receives
/// frames to other addresses too; Linux counts them as rx_otherhost_dropped.
///
/// A single 802.1Q tag needs no case: the kernel moves it from the data to the packet's metadata before a packet socket
/// sees it.
static const sock_filter kRoceFilter[] = {
    /*  0 */ BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<__u32>(SKF_AD_OFF + SKF_AD_PKTTYPE)),
    /*  1 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OTHERHOST, 35, 0),
    /*  2 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_BROADCAST, 34, 0),
    /*  3 */ BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12),            // EtherType
    /*  4 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x86dd, 19, 0),// IPv6: to 24
    /*  5 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x0800, 0, 31),
    /*  6 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 23),            // IPv4 protocol
    /*  7 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 17, 0, 29),
    /*  8 */ BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 20),            // more fragments, or an offset
    /*  9 */ BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x3fff, 27, 0),
    /* 10 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),             // to a group of MAC addresses?
    /* 11 */ BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 1, 0, 9), // no: to 21
    /* 12 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 30),
    /* 13 */ BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf0),
    /* 14 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xe0, 0, 22),// 224.0.0.0/4
    /* 15 */ BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 30),
    /* 16 */ BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x7fffff),     // 01:00:5e and 23 bits of the group (RFC 1112)
    /* 17 */ BPF_STMT(BPF_ALU | BPF_OR | BPF_K, 0x5e000000),
    /* 18 */ BPF_STMT(BPF_MISC | BPF_TAX, 0),
    /* 19 */ BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2),
    /* 20 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 16),
    /* 21 */ BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 14),           // X = length of the IPv4 header
    /* 22 */ BPF_STMT(BPF_LD | BPF_H | BPF_IND, 16),
    /* 23 */ BPF_STMT(BPF_JMP | BPF_JA, 11),                    // to 35
    /* 24 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 20),            // IPv6 next header
    /* 25 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 17, 0, 11),
    /* 26 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),             // to a group of MAC addresses?
    /* 27 */ BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 1, 0, 6), // no: to 34
    /* 28 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 38),
    /* 29 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xff, 0, 7),// ff00::/8
    /* 30 */ BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 50),            // 33:33 and 32 bits of the group (RFC 2464)
    /* 31 */ BPF_STMT(BPF_MISC | BPF_TAX, 0),
    /* 32 */ BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2),
    /* 33 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 3),
    /* 34 */ BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 56),
    /* 35 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 4791, 0, 1),// UDP destination port
    /* 36 */ BPF_STMT(BPF_RET | BPF_K, 0x40000),
    /* 37 */ BPF_STMT(BPF_RET | BPF_K, 0),
};

/// Drops everything: for a socket that only binds a port.
static const sock_filter kNothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};

template <size_t N>
static int AttachFilter(int fd, const sock_filter (&program)[N]) {
  sock_fprog prog{N, const_cast<sock_filter*>(program)};
  return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof prog);
}

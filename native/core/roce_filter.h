// Classic BPF programs that say which packets a socket receives.
#pragma once
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <sys/socket.h>
#include <iterator>
#include <vector>

/// UDP to port 4791 over IPv4 or IPv6, unfragmented, without IPv6 extension headers, to the interface's own MAC address
/// or, if the destination is a multicast group, to that group's MAC address. In promiscuous mode an interface receives
/// frames to other addresses too; Linux counts them as rx_otherhost_dropped.
///
/// A single 802.1Q tag needs no case: the kernel moves it from the data to the packet's metadata before a packet socket
/// sees it.
static const sock_filter kRoceFilter[] = {
    /*  0 */ BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<__u32>(SKF_AD_OFF + SKF_AD_PKTTYPE)),
    /*  1 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OTHERHOST, 34, 0),
    /*  2 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_BROADCAST, 33, 0),
    /*  3 */ BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12),            // EtherType
    /*  4 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x86dd, 18, 0),// IPv6: to 23
    /*  5 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x0800, 0, 30),
    /*  6 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 23),            // IPv4 protocol
    /*  7 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 17, 0, 28),
    /*  8 */ BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 20),            // more fragments, or an offset
    /*  9 */ BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x3fff, 26, 0),
    /* 10 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),             // to a group of MAC addresses?
    /* 11 */ BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 1, 0, 9), // no: to 21
    /* 12 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 30),
    /* 13 */ BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf0),
    /* 14 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xe0, 0, 21),// 224.0.0.0/4
    /* 15 */ BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 30),
    /* 16 */ BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x7fffff),     // 01:00:5e and 23 bits of the group (RFC 1112)
    /* 17 */ BPF_STMT(BPF_ALU | BPF_OR | BPF_K, 0x5e000000),
    /* 18 */ BPF_STMT(BPF_MISC | BPF_TAX, 0),
    /* 19 */ BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2),
    /* 20 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 15),
    /* 21 */ BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 14),           // X = length of the IP header
    /* 22 */ BPF_STMT(BPF_JMP | BPF_JA, 11),                    // to 34
    /* 23 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 20),            // IPv6 next header
    /* 24 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 17, 0, 11),
    /* 25 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),             // to a group of MAC addresses?
    /* 26 */ BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 1, 0, 6), // no: to 33
    /* 27 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 38),
    /* 28 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xff, 0, 7),// ff00::/8
    /* 29 */ BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 50),            // 33:33 and 32 bits of the group (RFC 2464)
    /* 30 */ BPF_STMT(BPF_MISC | BPF_TAX, 0),
    /* 31 */ BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2),
    /* 32 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 3),
    /* 33 */ BPF_STMT(BPF_LDX | BPF_IMM, 40),
    /* 34 */ BPF_STMT(BPF_LD | BPF_H | BPF_IND, 16),
    /* 35 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 4791, 1, 0),// UDP destination port
    /* 36 */ BPF_STMT(BPF_RET | BPF_K, 0),
    /* 37 */ BPF_STMT(BPF_RET | BPF_K, 0x40000),
};

/// As kRoceFilter, but of the packets without UDP checksum only those to queue pairs whose numbers, in the bits of
/// `mask`, are `value`, to queue pair 1 (GSI), and to the queue pair number of multicast. The kernel may have coalesced
/// packets with a checksum, for several queue pairs, into one super-packet.
static inline std::vector<sock_filter> SteeringFilter(__u32 mask, __u32 value) {
  std::vector<sock_filter> program(std::begin(kRoceFilter), std::end(kRoceFilter) - 1);
  const sock_filter flows[] = {
      /* 37 */ BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
      /* 38 */ BPF_STMT(BPF_ALU | BPF_SUB | BPF_X, 0),
      /* 39 */ BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 30, 0, 9),  // without a BTH: the card counts it
      /* 40 */ BPF_STMT(BPF_LD | BPF_H | BPF_IND, 20),           // UDP checksum
      /* 41 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 7),
      /* 42 */ BPF_STMT(BPF_LD | BPF_W | BPF_IND, 26),
      /* 43 */ BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffffff),    // destination queue pair
      /* 44 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 4, 0),
      /* 45 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xffffff, 3, 0),
      /* 46 */ BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask),
      /* 47 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0),
      /* 48 */ BPF_STMT(BPF_RET | BPF_K, 0),
      /* 49 */ BPF_STMT(BPF_RET | BPF_K, 0x40000),
  };
  program.insert(program.end(), std::begin(flows), std::end(flows));
  return program;
}

/// As kRoceFilter, for a program that shares its addresses with others: only packets to the queue pairs of its slot
/// (bits 16 to 23), to the queue pair number of multicast, and those with a UDP checksum, which the kernel may have
/// coalesced for several queue pairs. Of the messages to queue pair 1 only answers whose communication id begins with
/// the slot: requests reach the program by its UDP socket, which the kernel chooses by their service
/// (src/broker/steering.ts has the offsets).
static inline std::vector<sock_filter> SharedFilter(__u32 slot) {
  std::vector<sock_filter> program(std::begin(kRoceFilter), std::end(kRoceFilter) - 1);
  const sock_filter flows[] = {
      /* 37 */ BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
      /* 38 */ BPF_STMT(BPF_ALU | BPF_SUB | BPF_X, 0),
      /* 39 */ BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 30, 0, 18),   // without a BTH: the card counts it
      /* 40 */ BPF_STMT(BPF_LD | BPF_W | BPF_IND, 26),
      /* 41 */ BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffffff),    // destination queue pair
      /* 42 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xffffff, 15, 0),
      /* 43 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 4, 0),     // to 48
      /* 44 */ BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 16),
      /* 45 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, slot, 12, 0),
      /* 46 */ BPF_STMT(BPF_LD | BPF_H | BPF_IND, 20),           // UDP checksum
      /* 47 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 9, 10),
      /* 48 */ BPF_STMT(BPF_LD | BPF_H | BPF_IND, 58),           // attribute of the message
      /* 49 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x01, 7, 0),  // ClassPortInfo
      /* 50 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x10, 6, 0),  // REQ
      /* 51 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x17, 5, 0),  // SIDR_REQ
      /* 52 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x18, 2, 0),  // SIDR_REP: to 55
      /* 53 */ BPF_STMT(BPF_LD | BPF_B | BPF_IND, 70),           // remote communication id
      /* 54 */ BPF_STMT(BPF_JMP | BPF_JA, 1),
      /* 55 */ BPF_STMT(BPF_LD | BPF_B | BPF_IND, 66),           // request id
      /* 56 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, slot, 1, 0),
      /* 57 */ BPF_STMT(BPF_RET | BPF_K, 0),
      /* 58 */ BPF_STMT(BPF_RET | BPF_K, 0x40000),
  };
  program.insert(program.end(), std::begin(flows), std::end(flows));
  return program;
}

/// Drops everything: for a socket that only binds a port.
static const sock_filter kNothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};

static inline int AttachFilter(int fd, const sock_filter* program, size_t length) {
  sock_fprog prog{static_cast<unsigned short>(length), const_cast<sock_filter*>(program)};
  return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof prog);
}

template <size_t N>
static int AttachFilter(int fd, const sock_filter (&program)[N]) {
  return AttachFilter(fd, program, N);
}

// The XDP program of the xdp link. It redirects whole, unfragmented UDP datagrams to port 4791 of a card's address, in
// frames to the MAC address that belongs to it, to the AF_XDP socket of the queue on which they arrived. Everything
// else passes to the kernel, and so do these datagrams while the queue has no socket. It parses IPv4 without options
// and IPv6 without extension headers, with one 802.1Q tag or none.
//
// Of an address that the card shares with other programs it redirects datagrams to the card's own queue pairs, and
// answers of the CM to the card (src/broker/steering.ts). The kernel gives the others to the UDP socket of a program.
//
// The section "xdp.frags" says that the program reads only the first buffer of a frame, so it may run at any MTU.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
// These headers use declarations of the ones above.
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ROCE_PORT 4791
#define VERSION_AND_LENGTH_WITHOUT_OPTIONS 0x45
#define MORE_FRAGMENTS_OR_OFFSET 0x3fff
#define MAX_QUEUES 256
#define MAX_ADDRESSES 4096

// Destinations of packets.
#define GSI 1
#define MULTICAST 0xffffff
#define SLOT_SHIFT 16
// Attributes of the CM (IBTA table 160).
#define CLASS_PORT_INFO 0x01
#define REQ 0x10
#define SIDR_REQ 0x17
#define SIDR_REP 0x18

struct vlan_tag {
  __be16 tci;
  __be16 type;
};

// Several cards may have queues on one interface, with the same address on each. So the key holds the queue and the
// address.
struct address_key {
  __u32 queue;
  __u8 address[16];  // IPv4 as ::ffff:a.b.c.d
};

struct address_rule {
  // The destination MAC address of the address's frames: the interface's own, or that of a multicast group.
  __u16 mac[ETH_ALEN / 2];
  // Bits 16 to 23 of the numbers of the card's queue pairs, and first byte of its communication ids; 0 = the card
  // shares the address with no other program.
  __u16 slot;
};

// Headers of InfiniBand, and the beginning of a message of the CM, from the UDP payload on.
struct bth {
  __u8 opcode, flags;
  __be16 pkey;
  __be32 destination;
  __be32 sequence;
};
struct mad {
  struct bth bth;
  __u8 deth[8], header[16];
  __be16 attribute;
  __u8 modifier[6];
  __u8 request_id[4], remote_comm_id[4];
};

struct {
  __uint(type, BPF_MAP_TYPE_XSKMAP);
  __uint(max_entries, MAX_QUEUES);
  __type(key, __u32);
  __type(value, __u32);
} roce_sockets SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, MAX_ADDRESSES);
  __type(key, struct address_key);
  __type(value, struct address_rule);
} roce_addresses SEC(".maps");

static __always_inline int is_for(__u16 slot, void *payload, void *end) {
  struct bth *bth = payload;
  if ((void *)(bth + 1) > end) return 0;
  __u32 to = bpf_ntohl(bth->destination) & MULTICAST;
  if (to != GSI) return to == MULTICAST || to >> SLOT_SHIFT == slot;
  struct mad *mad = payload;
  if ((void *)(mad + 1) > end) return 0;
  __u16 attribute = bpf_ntohs(mad->attribute);
  if (attribute == CLASS_PORT_INFO || attribute == REQ || attribute == SIDR_REQ) return 0;
  return (attribute == SIDR_REP ? mad->request_id[0] : mad->remote_comm_id[0]) == slot;
}

SEC("xdp.frags")
int roce_xdp(struct xdp_md *context) {
  void *at = (void *)(long)context->data;
  void *end = (void *)(long)context->data_end;
  struct address_key key = {.queue = context->rx_queue_index};

  struct ethhdr *ethernet = at;
  at = ethernet + 1;
  if (at > end) return XDP_PASS;
  __be16 type = ethernet->h_proto;
  if (type == bpf_htons(ETH_P_8021Q)) {
    struct vlan_tag *tag = at;
    at = tag + 1;
    if (at > end) return XDP_PASS;
    type = tag->type;
  }

  if (type == bpf_htons(ETH_P_IP)) {
    struct iphdr *ip = at;
    at = ip + 1;
    if (at > end || *(__u8 *)ip != VERSION_AND_LENGTH_WITHOUT_OPTIONS || ip->protocol != IPPROTO_UDP ||
        (ip->frag_off & bpf_htons(MORE_FRAGMENTS_OR_OFFSET)))
      return XDP_PASS;
    key.address[10] = key.address[11] = 0xff;
    __builtin_memcpy(&key.address[12], &ip->daddr, sizeof ip->daddr);
  } else if (type == bpf_htons(ETH_P_IPV6)) {
    struct ipv6hdr *ip = at;
    at = ip + 1;
    if (at > end || ip->nexthdr != IPPROTO_UDP) return XDP_PASS;
    __builtin_memcpy(key.address, &ip->daddr, sizeof key.address);
  } else {
    return XDP_PASS;
  }

  struct udphdr *udp = at;
  if ((void *)(udp + 1) > end || udp->dest != bpf_htons(ROCE_PORT)) return XDP_PASS;
  struct address_rule *rule = bpf_map_lookup_elem(&roce_addresses, &key);
  __u16 *to = (__u16 *)ethernet->h_dest;
  if (!rule || to[0] != rule->mac[0] || to[1] != rule->mac[1] || to[2] != rule->mac[2]) return XDP_PASS;
  if (rule->slot != 0 && !is_for(rule->slot, udp + 1, end)) return XDP_PASS;
  return bpf_redirect_map(&roce_sockets, context->rx_queue_index, XDP_PASS);
}

char _license[] SEC("license") = "Apache-2.0";

// The XDP program of the xdp link. It redirects whole, unfragmented UDP datagrams to port 4791 of a card's address, in
// frames to the MAC address that belongs to it, to the AF_XDP socket of the queue on which they arrived. Everything
// else passes to the kernel, and so do these datagrams while the queue has no socket. It parses IPv4 without options
// and IPv6 without extension headers, with one 802.1Q tag or none.
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

// The destination MAC address of an address's frames: the interface's own, or that of a multicast group.
struct address_mac {
  __u16 words[ETH_ALEN / 2];
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
  __type(value, struct address_mac);
} roce_addresses SEC(".maps");

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
  struct address_mac *mac = bpf_map_lookup_elem(&roce_addresses, &key);
  __u16 *to = (__u16 *)ethernet->h_dest;
  if (!mac || to[0] != mac->words[0] || to[1] != mac->words[1] || to[2] != mac->words[2]) return XDP_PASS;
  return bpf_redirect_map(&roce_sockets, context->rx_queue_index, XDP_PASS);
}

char _license[] SEC("license") = "Apache-2.0";

// An XDP program that drops one of a hundred frames of RoCE that an interface receives.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int lose(struct xdp_md *frame)
{
	struct ethhdr *ethernet = (void *)(long)frame->data;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct udphdr *udp = (void *)(ip + 1);

	if ((void *)(udp + 1) > (void *)(long)frame->data_end || ethernet->h_proto != bpf_htons(ETH_P_IP) ||
	    ip->protocol != IPPROTO_UDP || udp->dest != bpf_htons(4791))
		return XDP_PASS;
	return bpf_get_prandom_u32() % 100 == 0 ? XDP_DROP : XDP_PASS;
}

char _license[] SEC("license") = "GPL";

/** Constants of the headers in front of a RoCEv2 packet. */

/** Bytes of an Ethernet header without a tag. */
export const ETHERNET_BYTES = 14;
/** Bytes of an 802.1Q tag. */
export const VLAN_TAG_BYTES = 4;
/** EtherTypes (IEEE 802 numbers). */
export const ETHERTYPE = { IPV4: 0x0800, VLAN: 0x8100, IPV6: 0x86dd } as const;
/** The UDP port of RoCEv2 (IANA). */
export const ROCE_PORT = 4791;

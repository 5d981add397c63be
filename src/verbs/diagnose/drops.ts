/** The meaning of the drop counters: the reason to drop a packet without a NAK, and the remedy. */

const REASONS: Readonly<Record<string, string>> = {
  drop_short: 'the frame is shorter than its headers: not RoCE, or damaged',
  drop_ethertype: 'neither IPv4 nor IPv6, or behind more than one VLAN tag',
  drop_ip_header: 'the IPv4 header has options, or its length does not match the frame',
  drop_ip_checksum: 'the IPv4 header checksum is wrong: damaged in transit',
  drop_ip_fragment: 'an IP fragment: the path MTU is larger than some link of the path allows',
  drop_not_udp: 'not UDP, or with IPv6 extension headers',
  drop_udp_port: 'the UDP destination port is not 4791',
  drop_udp_length: 'the UDP length does not match the packet: damaged or truncated in transit',
  drop_transport_version: 'the BTH has an unknown transport version',
  drop_opcode: 'the BTH opcode is unknown, or of an unsupported transport (RD, XRC)',
  drop_length: 'payload and pad count do not match the opcode, or the packet ends within its headers',
  drop_qpn:
    'the destination queue pair does not exist: it was closed, the peer uses a wrong number, or the packet is for another card on this interface',
  drop_qp_type: 'the transport is not that of the queue pair: both ends must have the same type (RC, UC, UD)',
  drop_qp_state:
    'the queue pair was not ready: requests need RTR or later, responses need RTS, and ERR accepts nothing',
  drop_source_address:
    "the source address is not the peer's: it sends from another address than its GID, or through a NAT",
  drop_destination_address:
    'the destination is another address of this device than that of the connection: the peer uses another GID',
  drop_vlan:
    "another VLAN than the connection's; for a datagram, a VLAN into which no queue pair or address handle of the device has a path",
  drop_pkey: 'another partition: the P_Keys differ, or both ends are limited members',
  drop_qkey: "the Q_Key is not the queue pair's",
  drop_icrc:
    'the ICRC is wrong: damaged in transit, or rewritten by a NAT; FLUSHes of Linux rxe need the quirk rxeFlushIcrc',
  drop_multicast: 'no queue pair of this device is a member of the multicast group',
  drop_no_receive: 'no receive was posted for the datagram',
  drop_receive_length: 'the datagram is longer than its receive, which needs 40 bytes more than the message',
  drop_unreliable_sequence: 'an earlier packet of the UC message was lost',
  drop_unreliable_refused:
    'no receive was posted for the UC message, or it was refused: wrong key, missing right or wrong length',
  drop_psn_ahead:
    'earlier packets are missing, and it is too far ahead of them to be kept; one sequence NAK was sent (out_of_seq_request), and the peer retransmits them',
  drop_duplicate_unknown:
    'a duplicate READ or atomic that can no longer be answered: its key is gone, or newer ones have taken its place',
  drop_after_fault: 'it follows a refused request: the queue pair is about to go to ERR',
  drop_ghost_response:
    'a response to a request that is complete or was never sent: a duplicate, or of an earlier connection',
  drop_response_order: 'earlier responses are missing; their requests were retransmitted (implied_nak_seq_err)',
  drop_rnr_wait: 'a NAK during the delay of an RNR NAK',
  drop_reserved_syndrome: 'the AETH syndrome of a response is reserved',
  drop_implausible_nak: 'a NAK that would end the connection has an MSN that the peer cannot have: it may be forged',
  'link.rx_dropped':
    'frames arrived faster than they were processed: the program polls too rarely, or needs worker mode',
};

/**
 * Explains a drop counter: why its packets were dropped without a NAK, and what to do.
 * @param counter name of a counter of `device.counters()` or `qp.counters()`
 * @returns a phrase; undefined for counters that count no drops
 */
export function explainDrop(counter: string): string | undefined {
  return Object.hasOwn(REASONS, counter) ? REASONS[counter] : undefined;
}

/** What the counters of silent drops mean: why a packet was dropped without a word to who sent it, and what is to be done. */

const REASONS: Readonly<Record<string, string>> = {
  drop_short: 'a frame is too short for its headers: something else than RoCE, or a damaged frame',
  drop_ethertype: 'neither IPv4 nor IPv6, or behind more than one VLAN tag',
  drop_ip_header: 'an IPv4 header with options, or an IP length that is not that of the frame',
  drop_ip_checksum: 'the checksum of an IPv4 header is wrong: damaged on the way',
  drop_ip_fragment: 'an IP fragment: the path MTU is larger than what some part of the path carries',
  drop_not_udp: 'an IP packet of another protocol than UDP, or with extension headers',
  drop_udp_port: 'a datagram to another port than 4791',
  drop_udp_length: 'the UDP length is not that of the packet: damaged, or cut on the way',
  drop_transport_version: 'the BTH has a transport version that does not exist',
  drop_opcode: 'the BTH has an opcode that does not exist, or of a transport that the card has not (RD, XRC)',
  drop_length: 'payload and pad do not go with the opcode, or the packet ends within its headers',
  drop_qpn:
    'for a queue pair that does not exist: it was closed, the peer was told another number, or the packet is for another card on this interface',
  drop_qp_type: 'of another transport than the queue pair: both ends must be of one type (RC, UC, UD)',
  drop_qp_state: 'the queue pair was not ready: requests need RTR or later, answers RTS; in ERR nothing is taken',
  drop_source_address:
    "not from the peer's address: it sends from another one than the GID that it has told, or through a NAT",
  drop_destination_address: 'to another address of ours than that of the connection: the peer was told another GID',
  drop_pkey: 'of another partition: no P_Key in common, or both ends are limited members',
  drop_qkey: "the Q_Key is not the queue pair's",
  drop_icrc:
    'the ICRC is wrong: damaged on the way, or rewritten by a NAT; FLUSHes of Linux rxe need the quirk rxeFlushIcrc',
  drop_multicast: 'to a group of which no queue pair here is a member',
  drop_no_receive: 'a datagram found no receive posted',
  drop_receive_length: 'a datagram is longer than its receive, which needs 40 bytes more than the message',
  drop_unreliable_sequence: 'a packet of a message of UC of which one before it was lost',
  drop_unreliable_refused:
    'a message of UC found no receive posted, or was refused: a wrong key, a missing right, a wrong length',
  drop_psn_ahead:
    'packets before it are missing; that was said once (out_of_seq_request), and the peer sends them again',
  drop_duplicate_unknown:
    'a READ or atomic was repeated that is no longer remembered: the peer asks for more at a time than maxDestRdAtomic',
  drop_after_fault: 'it came behind a request that was refused: the queue pair is about to go to ERR',
  drop_ghost_response:
    'the answer to a request that is done, or was never sent: a duplicate, or of an earlier connection',
  drop_response_order: 'answers before it are missing; they were asked for again (implied_nak_seq_err)',
  drop_rnr_wait: 'a NAK while the wait that an RNR NAK asks for goes on',
  drop_reserved_syndrome: 'the AETH of an answer has a syndrome that does not exist',
  'link.rx_dropped':
    'frames came faster than they were taken: the program does not poll often enough, or needs worker mode',
};

/** @returns a sentence, undefined for counters that count no drops */
export function explainDrop(counter: string): string | undefined {
  return Object.hasOwn(REASONS, counter) ? REASONS[counter] : undefined;
}

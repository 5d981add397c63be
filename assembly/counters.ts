// Counters of the card and of each queue pair. They have Linux' names where Linux has one (rdma_rxe and the common
// hardware counters). Every received frame counts in exactly one of rcvd_pkts and the drop_... counters.
import { COUNTERS } from './memorymap';

export enum Counter {
  sent_pkts,
  rcvd_pkts,
  sent_bytes,
  rcvd_bytes,
  rdma_sends,
  rdma_recvs,
  rx_write_requests,
  rx_read_requests,
  rx_atomic_requests,
  duplicate_request,
  /** Requests that arrived ahead of a gap and were executed once it was filled. */
  rx_reordered,
  out_of_seq_request,
  send_rnr_err,
  rcvd_rnr_err,
  rcvd_seq_err,
  implied_nak_seq_err,
  local_ack_timeout_err,
  retransmits,
  /** Packets retransmitted before the ACK timer expired. */
  roce_adp_retrans,
  /** Messages that waited for credits of the peer. */
  rc_crwaits,
  retry_exceeded_err,
  retry_rnr_exceeded_err,
  send_err,
  req_remote_access_errors,
  req_remote_invalid_request,
  req_cqe_error,
  resp_remote_access_errors,
  resp_remote_invalid_request,
  resp_cqe_error,
  cq_overrun,
  np_ecn_marked_roce_packets,
  np_cnp_sent,
  rp_cnp_handled,
  rp_cnp_ignored,
  events_lost,
  // Reasons for which a frame is dropped silently.
  drop_short,
  drop_ethertype,
  drop_ip_header,
  drop_ip_checksum,
  drop_ip_fragment,
  drop_not_udp,
  drop_udp_port,
  drop_udp_length,
  drop_transport_version,
  drop_opcode,
  drop_length,
  drop_qpn,
  drop_qp_type,
  drop_qp_state,
  drop_source_address,
  drop_destination_address,
  drop_vlan,
  drop_pkey,
  drop_qkey,
  drop_icrc,
  drop_multicast,
  drop_no_receive,
  drop_receive_length,
  drop_unreliable_sequence,
  drop_unreliable_refused,
  drop_psn_ahead,
  drop_duplicate_unknown,
  drop_after_fault,
  drop_ghost_response,
  drop_response_order,
  drop_rnr_wait,
  drop_reserved_syndrome,
  drop_implausible_nak,
}

/** Bytes of one set of counters. */
export const COUNTER_BYTES: u32 = (<u32>Counter.drop_implausible_nak + 1) * 8;
/** No drop. Stands for none because sent_pkts is no drop counter. */
export const NO_DROP: Counter = Counter.sent_pkts;

/** Counts in one set only: for a frame that several queue pairs receive and that counts once for the card. */
export function add(set: usize, counter: Counter, by: u64): void {
  let ptr = set + ((<usize>counter) << 3);
  store<u64>(ptr, load<u64>(ptr) + by);
}

export function countOf(set: usize, counter: Counter): u64 {
  return load<u64>(set + ((<usize>counter) << 3));
}

export function countCard(counter: Counter): void {
  add(COUNTERS, counter, 1);
}

/** Counts for the card and for the queue pair whose counters are at `set`. */
export function count(set: usize, counter: Counter, by: u64): void {
  add(set, counter, by);
  add(COUNTERS, counter, by);
}

/** The counters as metrics: the type of each, and the text of its HELP line. */
import { explainDrop } from '../../index.js';

/** Values of the link that can fall. */
const GAUGES: Readonly<Record<string, string>> = {
  'link.rx_buffer_bytes': "Size of the socket's receive buffer in bytes.",
  'link.port_not_held': 'Addresses whose RoCE port another program or rxe has bound.',
  'link.tx_last_errno': 'errno of the last frame that could not be sent; 0 = none.',
  'link.rx_last_errno': 'errno of the last failed receive; 0 = none.',
};

const COUNTERS: Readonly<Record<string, string>> = {
  sent_pkts: 'RoCE packets sent.',
  rcvd_pkts: 'RoCE packets received and accepted.',
  sent_bytes: 'Bytes of the packets sent.',
  rcvd_bytes: 'Bytes of the packets received and accepted.',
  rdma_sends: 'SEND messages sent.',
  rdma_recvs: 'SEND messages received.',
  rx_write_requests: 'RDMA WRITE requests received.',
  rx_read_requests: 'RDMA READ requests received.',
  rx_atomic_requests: 'Atomic requests received.',
  duplicate_request: 'Requests received again.',
  rx_reordered: 'Requests that arrived ahead of a gap and were executed once it was filled.',
  out_of_seq_request: 'Requests received out of order, each answered by a sequence NAK.',
  send_rnr_err: 'RNR NAKs sent: no receive was posted.',
  rcvd_rnr_err: 'RNR NAKs received: the peer had no receive.',
  rcvd_seq_err: 'Sequence NAKs received.',
  implied_nak_seq_err: 'Responses out of order, after which requests were retransmitted.',
  local_ack_timeout_err: 'Expiries of the ACK timer.',
  retransmits: 'Packets retransmitted.',
  roce_adp_retrans: 'Packets retransmitted before the ACK timer expired.',
  rc_crwaits: 'Messages that waited for credits of the peer.',
  retry_exceeded_err: 'Queue pairs that failed because the peer did not answer.',
  retry_rnr_exceeded_err: 'Queue pairs that failed because the peer never posted a receive.',
  send_err: 'Send work requests that completed with an error.',
  req_remote_access_errors: 'Requests that the peer refused for their access rights or key.',
  req_remote_invalid_request: 'Requests that the peer refused as invalid.',
  req_cqe_error: 'Completions of send work requests with an error.',
  resp_remote_access_errors: 'Requests of peers refused for their access rights or key.',
  resp_remote_invalid_request: 'Requests of peers refused as invalid.',
  resp_cqe_error: 'Completions of receives with an error.',
  cq_overrun: 'Overruns of completion queues.',
  np_ecn_marked_roce_packets: 'Packets received with the mark of congestion (ECN).',
  np_cnp_sent: 'Congestion notification packets sent.',
  rp_cnp_handled: 'Congestion notification packets received, after which a queue pair slowed down.',
  rp_cnp_ignored: 'Congestion notification packets received without effect.',
  events_lost: 'Asynchronous events lost because their queue was full.',
  'link.tx_frames': 'Frames sent by the link.',
  'link.tx_bytes': 'Bytes of the frames sent by the link.',
  'link.tx_busy': 'Times that the kernel could take no more frames.',
  'link.tx_too_long': 'Frames not sent because they are longer than the interface allows.',
  'link.tx_invalid': 'Frames not sent because the link has no way for them.',
  'link.tx_errors': 'Frames that the kernel refused.',
  'link.tx_unreachable': 'Frames to an address that no card of the hub has.',
  'link.tx_gso_bursts': 'Super-packets sent by segmentation offload (GSO).',
  'link.tx_gso_frames': 'Frames sent within super-packets.',
  'link.tx_gso_refused': 'Super-packets that the kernel refused.',
  'link.rx_frames': 'Frames received by the link.',
  'link.rx_bytes': 'Bytes of the frames received by the link.',
  'link.rx_truncated': 'Frames received that were too long for their buffer.',
  'link.rx_errors': 'Failed receives.',
  'link.rx_gro_packets': 'Super-packets received by receive offload (GRO).',
  'link.rx_gro_frames': 'Frames received within super-packets.',
};

/** A metric of a counter, for the HELP and TYPE lines. */
export interface Metric {
  /** Suffix of the name: counters end in `_total`. */
  readonly name: string;
  readonly type: 'counter' | 'gauge';
  readonly help: string;
}

/** Describes the counter of a device or queue pair as a metric. */
export function metricOf(counter: string): Metric {
  const name = counter.replace(/\W/g, '_');
  const gauge = Object.hasOwn(GAUGES, counter) ? GAUGES[counter] : undefined;
  if (gauge !== undefined) return { name, type: 'gauge', help: gauge };
  return { name: `${name}_total`, type: 'counter', help: helpOf(counter) };
}

function helpOf(counter: string): string {
  if (Object.hasOwn(COUNTERS, counter)) return COUNTERS[counter] as string;
  const reason = explainDrop(counter);
  if (reason !== undefined) return `Packets dropped: ${reason}.`;
  const [, direction, fault] = /^link\.fault_(tx|rx)_(\w+)$/.exec(counter) ?? [];
  if (fault !== undefined)
    return `Frames ${direction === 'tx' ? 'sent' : 'received'} with the injected fault ${fault}.`;
  const [, rule] = /^link\.fault_rule_(\d+)_hits$/.exec(counter) ?? [];
  if (rule !== undefined) return `Packets that the rule of faults ${rule} has hit.`;
  // of a process with another version of this package
  return `The counter ${counter}.`;
}

/** Rejection reasons of a REJ (IBTA 12.6.7.2) and status codes of a SIDR_REP (12.11.2.1), by name. */

/** Reason codes of a REJ (IBTA 12.6.7.2, IB_CM_REJ_* in Linux). */
export const RejectReason = {
  /** No queue pair is available. */
  NO_QP: 1,
  /** No end-to-end context is available (RD). */
  NO_EEC: 2,
  /** Resources are exhausted; here: the listener's backlog is full. */
  NO_RESOURCES: 3,
  /** The sender has received no reply in time. The additional information is its CA GUID. */
  TIMEOUT: 4,
  /** The request is not supported; here: no P_Key of the REQ's partition. */
  UNSUPPORTED: 5,
  /** The message names an unknown communication id. */
  INVALID_COMM_ID: 6,
  /** The combination of communication ids and queue pair number is invalid. */
  INVALID_COMM_INSTANCE: 7,
  /** No listener for the service id. */
  INVALID_SERVICE_ID: 8,
  /** The listener has another type of queue pair. */
  INVALID_TRANSPORT_TYPE: 9,
  /** The queue pair belongs to a connection that has not ended yet. */
  STALE_CONNECTION: 10,
  /** The RD channel does not exist. */
  RDC_NOT_EXIST: 11,
  /** The primary remote GID is not an address of the receiver. */
  INVALID_GID: 12,
  /** The primary remote LID is invalid. */
  INVALID_LID: 13,
  /** The primary service level is invalid. */
  INVALID_SL: 14,
  /** The primary traffic class is invalid. */
  INVALID_TRAFFIC_CLASS: 15,
  /** The primary hop limit is invalid. */
  INVALID_HOP_LIMIT: 16,
  /** The primary packet rate is invalid. */
  INVALID_PACKET_RATE: 17,
  /** The alternate remote GID is invalid. */
  INVALID_ALT_GID: 18,
  /** The alternate remote LID is invalid. */
  INVALID_ALT_LID: 19,
  /** The alternate service level is invalid. */
  INVALID_ALT_SL: 20,
  /** The alternate traffic class is invalid. */
  INVALID_ALT_TRAFFIC_CLASS: 21,
  /** The alternate hop limit is invalid. */
  INVALID_ALT_HOP_LIMIT: 22,
  /** The alternate packet rate is invalid. */
  INVALID_ALT_PACKET_RATE: 23,
  /** Another port and communication manager serve the request. */
  PORT_CM_REDIRECT: 24,
  /** Another port serves the request. */
  PORT_REDIRECT: 25,
  /** The path MTU exceeds that of the receiver. The additional information is the largest code. */
  INVALID_MTU: 26,
  /** Too few responder resources. */
  INSUFFICIENT_RESP_RESOURCES: 27,
  /** The application has rejected the request (rdma_reject). */
  CONSUMER_DEFINED: 28,
  /** The RNR retry count is invalid. */
  INVALID_RNR_RETRY: 29,
  /** The sender uses the communication id for another connection already. */
  DUPLICATE_LOCAL_COMM_ID: 30,
  /** The class version of the MAD is not supported. */
  INVALID_CLASS_VERSION: 31,
  /** The primary flow label is invalid. */
  INVALID_FLOW_LABEL: 32,
  /** The alternate flow label is invalid. */
  INVALID_ALT_FLOW_LABEL: 33,
  /** A vendor option is not supported. */
  VENDOR_OPTION_NOT_SUPPORTED: 35,
} as const;

/** Name of a REJ's reason. */
export type RejectReasonName = keyof typeof RejectReason;

/** Status codes of a SIDR_REP (IBTA 12.11.2.1, IB_SIDR_* in Linux). */
export const SidrStatus = {
  /** The queue pair of the service is in the message. */
  SUCCESS: 0,
  /** No listener for the service id. */
  UNSUPPORTED: 1,
  /** The application has rejected the request. */
  REJECT: 2,
  /** No queue pair is available. */
  NO_QP: 3,
  /** Another port serves the request. */
  REDIRECT: 4,
  /** The class version of the MAD is not supported. */
  UNSUPPORTED_VERSION: 5,
} as const;

/** Name of a SIDR_REP's status. */
export type SidrStatusName = keyof typeof SidrStatus;

/** Returns the name of a reason, or the number as text when it has no name. */
export function rejectReasonName(code: number): RejectReasonName | `${number}` {
  return nameOf(RejectReason, code);
}

/** Returns the name of a status, or the number as text when it has no name. */
export function sidrStatusName(code: number): SidrStatusName | `${number}` {
  return nameOf(SidrStatus, code);
}

function nameOf<T extends string>(codes: Readonly<Record<T, number>>, code: number): T | `${number}` {
  const found = (Object.entries(codes) as [T, number][]).find(([, value]) => value === code);
  return found?.[0] ?? `${code}`;
}

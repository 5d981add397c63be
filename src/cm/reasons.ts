/** Why a connection is refused: the codes of REJ (IBTA 12.6.7.2) and SIDR_REP (12.11.2.1), by name. */

export const RejectReason = {
  NO_QP: 1,
  NO_EEC: 2,
  NO_RESOURCES: 3,
  TIMEOUT: 4,
  UNSUPPORTED: 5,
  INVALID_COMM_ID: 6,
  INVALID_COMM_INSTANCE: 7,
  /** Nobody listens. */
  INVALID_SERVICE_ID: 8,
  INVALID_TRANSPORT_TYPE: 9,
  /** The queue pair is known from a connection that has not ended. */
  STALE_CONNECTION: 10,
  RDC_NOT_EXIST: 11,
  INVALID_GID: 12,
  INVALID_LID: 13,
  INVALID_SL: 14,
  INVALID_TRAFFIC_CLASS: 15,
  INVALID_HOP_LIMIT: 16,
  INVALID_PACKET_RATE: 17,
  INVALID_ALT_GID: 18,
  INVALID_ALT_LID: 19,
  INVALID_ALT_SL: 20,
  INVALID_ALT_TRAFFIC_CLASS: 21,
  INVALID_ALT_HOP_LIMIT: 22,
  INVALID_ALT_PACKET_RATE: 23,
  PORT_CM_REDIRECT: 24,
  PORT_REDIRECT: 25,
  INVALID_MTU: 26,
  INSUFFICIENT_RESP_RESOURCES: 27,
  /** The program said no. */
  CONSUMER_DEFINED: 28,
  INVALID_RNR_RETRY: 29,
  DUPLICATE_LOCAL_COMM_ID: 30,
  INVALID_CLASS_VERSION: 31,
  INVALID_FLOW_LABEL: 32,
  INVALID_ALT_FLOW_LABEL: 33,
  VENDOR_OPTION_NOT_SUPPORTED: 35,
} as const;

export type RejectReasonName = keyof typeof RejectReason;

export const SidrStatus = {
  SUCCESS: 0,
  /** Nobody listens. */
  UNSUPPORTED: 1,
  REJECT: 2,
  NO_QP: 3,
  REDIRECT: 4,
  UNSUPPORTED_VERSION: 5,
} as const;

export type SidrStatusName = keyof typeof SidrStatus;

/** The name of a reason; its number as text where it has none. */
export function rejectReasonName(code: number): RejectReasonName | `${number}` {
  return nameOf(RejectReason, code);
}

/** The name of a status; its number as text where it has none. */
export function sidrStatusName(code: number): SidrStatusName | `${number}` {
  return nameOf(SidrStatus, code);
}

function nameOf<T extends string>(codes: Readonly<Record<T, number>>, code: number): T | `${number}` {
  const found = (Object.entries(codes) as [T, number][]).find(([, value]) => value === code);
  return found?.[0] ?? `${code}`;
}

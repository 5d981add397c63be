/**
 * The numbers that a card and its caller share: offsets, codes and limits, read from the module itself once per process,
 * so that no layout and no code is declared twice.
 */
import { instantiate } from '../../build/card.js';
import { cardModule } from './card.js';

// This instance is never opened; it only lends its constants.
const constants = await instantiate(cardModule(), {
  env: { memory: new WebAssembly.Memory({ initial: 16, maximum: 16, shared: true }) },
});

export const {
  Access,
  AvOffset,
  CongestionParameter,
  CqeOffset,
  Errno,
  EventOffset,
  EventType,
  FlushPlacement,
  FlushSelectivity,
  LinkFlag,
  MwType,
  Opcode,
  QpAttr,
  QpState,
  QpType,
  Quirk,
  SendFlag,
  WcFlag,
  WcOpcode,
  WcStatus,
  WrOpcode,
} = constants;

/** Names of the counters, in the order in which the card keeps them. */
export const counterNames: readonly string[] = enumNames(constants.Counter);

/** What bounds every card. */
export const LIMITS = {
  maxMtu: constants.MAX_MTU.value,
  maxFrame: constants.MAX_FRAME.value,
  maxMessage: constants.MAX_MESSAGE.value,
  maxSge: constants.MAX_SGE.value,
  maxInline: constants.MAX_INLINE.value,
  maxWr: constants.MAX_WR.value,
  maxCqe: constants.MAX_CQE.value,
  maxRdAtomic: constants.MAX_RD_ATOMIC.value,
} as const;

/** Queue pair 1: its number, and its Q_Key. */
export const GSI = { qpn: constants.GSI_QPN.value, qkey: constants.GSI_QKEY.value >>> 0 } as const;

/** Name of a value of one of the enums above; the number itself when there is none. */
export function nameOf(codes: object, value: number): string {
  return (codes as Record<number, string | undefined>)[value] ?? String(value);
}

/** Value of a name of one of the enums above. */
export function codeOf(codes: object, name: string): number | undefined {
  const value = Object.hasOwn(codes, name) ? (codes as Record<string, unknown>)[name] : undefined;
  return typeof value === 'number' ? value : undefined;
}

/** Names of one of the enums above, in the order of their values. */
export function enumNames(codes: object): string[] {
  return Object.entries(codes)
    .filter((entry): entry is [string, number] => typeof entry[1] === 'number')
    .sort((a, b) => a[1] - b[1])
    .map(([name]) => name);
}

/**
 * Other cards of this host that have the same addresses. Every card receives the messages to queue pair 1 of an address
 * that it has, and must not refuse messages that are meant for another card.
 */
import type { Route } from './context.js';
import { type PortSpaceName, parseServiceId } from './serviceid.js';

/** Other cards, as the core sees them before it refuses a message. */
export interface OtherCards {
  /** First byte of the communication ids that this card assigns; undefined: any. */
  readonly commIdPrefix: number | undefined;
  /** Whether another card has assigned a communication id. */
  ownsCommId(commId: number): boolean;
  /** Whether another card listens on a port of an address. */
  listensOn(space: PortSpaceName, port: number, address: string): boolean;
}

/** No other card has an address of this one. */
export const NO_OTHER_CARDS: OtherCards = {
  commIdPrefix: undefined,
  ownsCommId: () => false,
  listensOn: () => false,
};

/** Whether another card listens for the service of a request, which that card then answers. */
export function isForOtherCard(
  otherCards: OtherCards,
  { serviceId }: { readonly serviceId: bigint },
  { local }: Route,
): boolean {
  const service = parseServiceId(serviceId);
  return service !== undefined && otherCards.listensOn(service.space, service.port, local);
}

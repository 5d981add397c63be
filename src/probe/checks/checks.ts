/** All checks, in the order of their numbers. */
import { ACK_CHECKS } from './acks.js';
import type { Check } from './check.js';
import { CM_CONNECT_CHECKS } from './cmconnect.js';
import { CM_END_CHECKS } from './cmend.js';
import { CM_REFUSE_CHECKS } from './cmrefuse.js';
import { CONGESTION_CHECKS } from './congestion.js';
import { ENTROPY_CHECKS } from './entropy.js';
import { ERROR_CHECKS } from './errorstate.js';
import { GID_CHECK } from './gids.js';
import { HEADER_CHECKS } from './headers.js';
import { KEY_CHECKS } from './keys.js';
import { LOSS_CHECK } from './loss.js';
import { MESSAGE_CHECKS } from './messages.js';
import { NEIGHBOUR_CHECKS } from './neighbours.js';
import { PATH_MTU_CHECK } from './pathmtu.js';
import { PERFORMANCE_CHECKS } from './performance.js';
import { REPEAT_CHECKS } from './repeats.js';
import { RESOURCE_CHECKS } from './resources.js';
import { RESPONSE_CHECKS } from './responses.js';
import { RETRY_CHECKS } from './retries.js';
import { RULE_CHECKS } from './rules.js';
import { SEQUENCE_CHECKS } from './sequence.js';
import { TRANSPORT_CHECKS } from './transport.js';
import { VLAN_CHECKS } from './vlan.js';

/** Checks of a peer that answers requests or sends them, and of its connection manager, by their numbers. */
export const CHECKS: readonly Check[] = [
  ...HEADER_CHECKS,
  ...RULE_CHECKS,
  ...SEQUENCE_CHECKS,
  ...ACK_CHECKS,
  ...KEY_CHECKS,
  ...MESSAGE_CHECKS,
  ...REPEAT_CHECKS,
  ...CONGESTION_CHECKS,
  ...RETRY_CHECKS,
  ...RESPONSE_CHECKS,
  ...CM_CONNECT_CHECKS,
  ...CM_REFUSE_CHECKS,
  ...CM_END_CHECKS,
  ...ENTROPY_CHECKS,
  ...RESOURCE_CHECKS,
  ...ERROR_CHECKS,
  ...TRANSPORT_CHECKS,
  ...VLAN_CHECKS,
  ...NEIGHBOUR_CHECKS,
  ...PERFORMANCE_CHECKS,
  LOSS_CHECK,
  PATH_MTU_CHECK,
  GID_CHECK,
].sort((a, b) => a.number - b.number);

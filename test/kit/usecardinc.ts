/** Setup of vitest's project `cardinc`: all cards of its tests are the card as C. */
import { cardInCPrivilege, useCards } from './cardinc.js';

const { ok, reason } = cardInCPrivilege();
if (!ok) throw new Error(reason);
useCards('c');

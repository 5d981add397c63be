/** Setup of vitest's project `regions`: all memory that its tests register is outside of their cards. */
import { regionsOutside } from './rig.js';

regionsOutside.enabled = true;

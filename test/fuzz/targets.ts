/** All fuzz targets. */
import { apiTarget } from './apitarget.js';
import { cardsTarget, cardTarget } from './cardtarget.js';
import { cmTarget } from './cmtarget.js';
import { dgramTarget } from './dgramtarget.js';
import type { FuzzTarget } from './fuzzer.js';
import { icrcTarget } from './icrctarget.js';
import { memoryTarget, packetTarget } from './livetarget.js';
import { nativeTarget } from './nativetarget.js';
import { regionsTarget } from './regionstarget.js';

export const TARGETS: readonly FuzzTarget[] = [
  ...[cardTarget, cardsTarget, memoryTarget, packetTarget, nativeTarget, icrcTarget, regionsTarget],
  ...[cmTarget, apiTarget, dgramTarget],
];

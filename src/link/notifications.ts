/** Notifications of the kernel: changes in its tables of the network (rtnetlink(7)). */
import { constants } from 'node:os';
import { native } from '../native.js';
import { type NetlinkMessage, netlinkMessages } from './netlink.js';

/** Groups of notifications: RTMGRP_*, and of RTNLGRP_IPV6_RULE its bit. */
export const RTMGRP = {
  LINK: 0x1,
  NEIGH: 0x4,
  IPV4_IFADDR: 0x10,
  IPV4_ROUTE: 0x40,
  IPV4_RULE: 0x80,
  IPV6_IFADDR: 0x100,
  IPV6_ROUTE: 0x400,
  IPV6_RULE: 0x40000,
} as const;

/** A socket that receives the notifications of some groups. Those that are not read take no more than its buffer. */
export class Notifications {
  /** Negative: the kernel has refused the socket, or it is closed. */
  #fd: number;

  /** @param groups bits of RTMGRP */
  constructor(groups: number) {
    this.#fd = native().netlinkListen(groups);
  }

  /** Whether notifications arrive: the kernel has not refused the socket, and it is not closed. */
  get isOpen(): boolean {
    return this.#fd >= 0;
  }

  get fd(): number {
    return this.#fd;
  }

  /** Removes the messages that have arrived. @returns undefined when some were lost */
  receive(): NetlinkMessage[] | undefined {
    let messages: NetlinkMessage[] | undefined = [];
    while (this.isOpen) {
      const received = native().netlinkReceive(this.#fd);
      if (typeof received !== 'number') messages?.push(...netlinkMessages(received));
      else if (received === -constants.errno.ENOBUFS) messages = undefined;
      else break;
    }
    return messages;
  }

  close(): void {
    if (this.isOpen) native().closeFd(this.#fd);
    this.#fd = -1;
  }
}

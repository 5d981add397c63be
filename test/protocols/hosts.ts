/** Addresses of the devices, also for programs outside of vitest. */

/** The client's. */
export const OWN_HOST = '10.0.0.1';
/** The server's. */
export const HOST = '10.0.0.2';

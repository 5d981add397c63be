/**
 * Import it for its effect: devices, also those of child processes, use the sockets of their link alone. With the
 * broker packets between two interfaces of this host would not be on these interfaces.
 */
process.env.WASM_ROCE_BROKER = 'off';

/** Bytes and numbers as hexadecimal text, for messages and comparisons. */

/** Two digits for each byte. */
export const bytesHex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

/** A number with `0x` in front, without leading zeroes. */
export const numberHex = (value: number | bigint): string => `0x${value.toString(16)}`;

/** Messages between processes: objects of JSON. */

/** A message whose fields are not checked yet. */
export type Message = Readonly<Record<string, unknown>>;

/** Whether a value of JSON has fields. */
export const isMessage = (value: unknown): value is Message =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Returns the message of these bytes, or of this text; undefined if they are none. */
export function parseMessage(bytes: Uint8Array | string): Message | undefined {
  try {
    const value: unknown = JSON.parse(typeof bytes === 'string' ? bytes : Buffer.from(bytes).toString());
    return isMessage(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

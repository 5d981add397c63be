/** What the addon's negative answers mean. */
import { getSystemErrorName } from 'node:util';
import { type ErrorCode, VerbsError } from '../errors.js';

/** errno's name of a negative answer of the addon. */
export function errnoName(refused: number): string {
  return getSystemErrorName(refused);
}

/** @param messages what to say for the errnos that a user can do something about */
export function refusal(refused: number, otherwise: string, messages: Partial<Record<ErrorCode, string>>): VerbsError {
  const name = errnoName(refused);
  const message = messages[name as ErrorCode];
  if (message !== undefined) return new VerbsError(name as ErrorCode, message);
  return new VerbsError('EIO', `${otherwise} (${name})`);
}

/** Errors for the negative results of the addon (-errno). */
import { getSystemErrorName } from 'node:util';
import { type ErrorCode, VerbsError } from '../errors.js';

/** Returns the name of a negative result of the addon: `ENODEV` for -ENODEV. */
export function errnoName(result: number): string {
  return getSystemErrorName(result);
}

/**
 * Returns the error for a negative result of the addon.
 * @param fallback the message of the EIO error for an errno that is not in `messages`
 * @param messages messages by errno, for errors that a user can fix
 */
export function errnoError(result: number, fallback: string, messages: Partial<Record<ErrorCode, string>>): VerbsError {
  const name = errnoName(result);
  const message = messages[name as ErrorCode];
  if (message !== undefined) return new VerbsError(name as ErrorCode, message);
  return new VerbsError('EIO', `${fallback} (${name})`);
}

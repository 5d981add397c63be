/** Returns name and code of what a call throws, to compare it with what Node.js throws. */
export function thrown(action: () => unknown): string {
  try {
    action();
    return 'nothing';
  } catch (error) {
    return `${(error as Error).name} ${(error as NodeJS.ErrnoException).code}`;
  }
}

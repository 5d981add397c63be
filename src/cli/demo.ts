import type { Command } from 'commander';
export function demoCommand(_program: Command): void {}

/** The program of one host, started in its namespace. Its argument is the host's role. */
import { serve } from '../workers/calls.js';

const ROLES = {
  target: async () => new (await import('./target.js')).Target(),
  honest: async () => new (await import('./honest.js')).Honest(),
  attacker: async () => new (await import('./attacker.js')).Attacker(),
};

serve(await ROLES[process.argv[2] as keyof typeof ROLES]());

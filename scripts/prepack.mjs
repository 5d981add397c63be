#!/usr/bin/env node
// Runs before `npm pack`: builds what is packed, and refuses to pack when a part is missing or older than its source.
import { addons, card, dist, xdpProgram } from './setup/build.mjs';
import { trySetup } from './setup.mjs';

const done = await trySetup();
const lacking = [card, ...addons, xdpProgram, dist].filter((step) => step.pending());
for (const { name } of lacking) console.error(`prepack: ${name}: missing or not up to date, so nothing is packed`);
if (!done || lacking.length > 0) process.exitCode = 1;

/** The command line of a broker, for programs that start one themselves. */
export { brokerCommandLine } from '../link/broker/start.js';

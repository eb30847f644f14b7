export { SilentServer } from '../../bench/offloading/silent-server.ts';
